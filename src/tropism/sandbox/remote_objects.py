"""Modules and objects of a submission, used by tests in another sandbox; part of a worker's program.

Plain values are copied. Other objects stay in the submission's sandbox, and the tests get proxies of them.
"""

import builtins
import importlib
import json
import operator
import os
from collections.abc import Callable
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tropism.sandbox.remote_calls import SubmissionError, describe_exception, pack, unpack

# Between two objects of the submission. With a plain value on one side, the submission must not decide the result:
# an object that equals everything would pass every test.
BINARY = ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor")
# Operations whose result the submission decides.
FORWARDED = ("setattr", "call", "getitem", "setitem", "iter", "len", "bool", "str", "repr", "hash")
END = object()
# Exceptions that Python itself interprets could end the loops of a test, or the test.
INTERPRETED = (StopIteration, StopAsyncIteration)


def public_names(module: ModuleType) -> list[str]:
    return list(getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]))


def next_item(iterator: Any) -> list[Any]:
    """A list with the next item; empty at the end."""
    item = next(iterator, END)
    return [] if item is END else [item]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "import": importlib.import_module,
    "names": public_names,
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "next": next_item,
    "isinstance": isinstance,
    **{function.__name__: function for function in (getattr, setattr, len, iter, str, repr, bool, hash)},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", *BINARY)},
}


class SharedObjects:
    """The objects of a submission that its tests refer to, by their numbers."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the id of the object

    def operate(self, payload: bytes) -> tuple[bytes, bytes]:
        try:
            name, args, kwargs = unpack(json.loads(payload), self._resolve)
            return b"V", json.dumps(pack(OPERATIONS[name](*args, **kwargs), self._refer)).encode()
        except BaseException as error:  # noqa: BLE001  raised again in the test
            return b"X", self._describe(error)

    def _describe(self, error: BaseException) -> bytes:
        """The name and message of an exception and, if possible, its type and its arguments."""
        try:
            plain = [type(error).__name__[:100], str(error)[:1000]]
            return json.dumps([*plain, self._refer(type(error)), pack(list(error.args))]).encode()
        except BaseException:  # noqa: BLE001  untrusted code
            return describe_exception(error)

    def _resolve(self, data: Any) -> Any:
        return self._objects[data[1]]

    def _refer(self, value: Any) -> Any:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        if not (isinstance(value, type) and issubclass(value, BaseException)):
            return ["object", number]
        if getattr(builtins, value.__name__, None) is value:
            return ["builtin", value.__name__]
        bases = [self._refer(base) for base in value.__bases__ if issubclass(base, BaseException)]
        return ["exception", [number, value.__name__, bases]]


class Remote:
    """The tests' side: performs operations on the objects of the submission."""

    def __init__(self, channel: Any):
        self._channel = channel
        self._types: dict[int, type[Exception]] = {}

    def operate(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._channel.send(b"O", json.dumps(pack([name, list(args), kwargs], self._refer)).encode())
        kind, payload = self._channel.receive()
        try:
            data = json.loads(payload)
            if kind == b"V":
                return unpack(data, self._resolve)
            error = self._exception(*data)
        except Exception as malformed:  # noqa: BLE001  a forged answer can be anything
            raise SubmissionError(type(malformed).__name__, "the answer is malformed") from None
        raise error

    def _refer(self, value: Any) -> Any:
        if isinstance(value, RemoteObject):
            return ["object", object.__getattribute__(value, "_number")]
        number = next((number for number, kind in self._types.items() if kind is value), None)
        if number is None:
            raise TypeError(f"{type(value).__name__} is not a plain value and cannot be passed to the submission")
        return ["object", number]

    def _resolve(self, data: Any) -> Any:
        kind, content = data
        return RemoteObject(self, int(content)) if kind == "object" else self._exception_type(data)

    def _exception(self, name: str, message: str, kind: Any = None, args: Any = None) -> Exception:
        try:
            return self._exception_type(kind)(*unpack(args))
        except (TypeError, ValueError):
            return SubmissionError(str(name), str(message))

    def _exception_type(self, data: Any) -> type[Exception]:
        """The type of an exception here: Python's own, or one with the same bases as the submission's."""
        kind, content = data
        if kind == "builtin":
            found = getattr(builtins, content)
            return found if issubclass(found, Exception) and not issubclass(found, INTERPRETED) else SubmissionError
        number, name, bases = content
        if number not in self._types:
            parents = tuple(dict.fromkeys(self._exception_type(base) for base in bases))
            self._types[number] = type(str(name), parents, {})
        return self._types[number]


class RemoteObject:
    """An object of the submission. Most of its methods are added below."""

    def __init__(self, remote: Remote, number: int):
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_operate", remote.operate)

    def __getattr__(self, name: str) -> Any:
        return self._operate("getattr", self, name)

    def __next__(self) -> Any:
        for item in self._operate("next", self):
            return item
        raise StopIteration

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, RemoteObject) and self._operate("isinstance", value, self)


def _forward(name: str) -> Callable[..., Any]:
    def operate(self: RemoteObject, *args: Any, **kwargs: Any) -> Any:
        return self._operate(name, self, *args, **kwargs)

    return operate


def _binary(name: str) -> Callable[[RemoteObject, Any], Any]:
    def operate(self: RemoteObject, other: Any) -> Any:
        return self._operate(name, self, other) if isinstance(other, RemoteObject) else NotImplemented

    return operate


for _name in FORWARDED:
    setattr(RemoteObject, f"__{_name}__", _forward(_name))
for _name in BINARY:
    setattr(RemoteObject, f"__{_name.strip('_')}__", _binary(_name))


class RemoteModules(MetaPathFinder, Loader):
    """Imports modules of the submission, whose names are given with whether they are packages."""

    def __init__(self, remote: Remote, modules: dict[str, bool]):
        self._remote = remote
        self._modules = modules

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname not in self._modules:
            return None
        spec = ModuleSpec(fullname, self, is_package=self._modules[fullname])
        if spec.submodule_search_locations is not None:  # tests may be inside of a package
            spec.submodule_search_locations.append(os.path.join(os.getcwd(), *fullname.split(".")))
        return spec

    def exec_module(self, module: ModuleType) -> None:
        reference = self._remote.operate("import", module.__name__)
        vars(module)["__all__"] = self._remote.operate("names", reference)
        vars(module)["__getattr__"] = partial(self._remote.operate, "getattr", reference)
