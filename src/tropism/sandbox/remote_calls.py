"""Calls of a submission's functions from a test in another sandbox; part of a worker's program."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

Refer = Callable[[Any], Any]


def refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not a plain value and cannot be passed between sandboxes")


def pack(value: Any, refer: Refer = refuse) -> Any:
    """Encode a plain Python value as JSON; `refer` encodes other values."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        kind = next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))
        return [kind.__name__, [pack(item, refer) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[pack(name, refer), pack(item, refer)] for name, item in value.items()]]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return pack(value.tolist(), refer)
    return refer(value)


UNPACK: dict[str, Callable[[Any, Refer], Any]] = {
    "list": lambda items, inner: [inner(item) for item in items],
    "tuple": lambda items, inner: tuple([inner(item) for item in items]),
    "set": lambda items, inner: {inner(item) for item in items},
    "frozenset": lambda items, inner: frozenset([inner(item) for item in items]),
    "dict": lambda items, inner: {inner(name): inner(item) for name, item in items},
    "bytes": lambda text, _: bytes.fromhex(text),
    "complex": lambda parts, _: complex(*parts),
}


def unpack(data: Any, resolve: Refer = refuse) -> Any:
    """Decode a value; `resolve` decodes what `refer` has encoded."""
    if not isinstance(data, list):
        return data
    kind, content = data
    decode = UNPACK.get(kind)
    return resolve(data) if decode is None else decode(content, lambda item: unpack(item, resolve))


class SubmissionError(Exception):
    """Raised in a test if a call of the submission fails, whatever it raised: an exception that Python itself
    interprets, such as StopIteration, could end the test's own loops. `name` is the name of the original type."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


def call(payload: bytes, namespace: dict[str, Any]) -> tuple[bytes, bytes]:
    """Call a function of the submission; returns its value or the name and message of the exception it raised."""
    try:
        name, args, kwargs = unpack(json.loads(payload))
        return b"V", json.dumps(pack(namespace[name](*args, **kwargs))).encode()
    except BaseException as error:  # noqa: BLE001  raised again in the caller
        return b"X", describe_exception(error)


def describe_exception(error: BaseException) -> bytes:
    with contextlib.suppress(BaseException):
        return json.dumps([type(error).__name__[:100], str(error)[:1000]]).encode()
    return b'["Exception", "an exception that cannot be printed"]'


def proxy(channel: Any, name: str) -> Callable[..., Any]:
    """A function that runs in another sandbox; arguments and results are plain values."""

    def remote(*args: Any, **kwargs: Any) -> Any:
        channel.send(b"C", json.dumps(pack([name, list(args), kwargs])).encode())
        kind, payload = channel.receive()
        try:
            if kind == b"V":
                return unpack(json.loads(payload))
            type_name, message = map(str, json.loads(payload))
        except Exception as error:  # noqa: BLE001  a forged answer can be anything
            raise SubmissionError(type(error).__name__, "the answer is malformed") from None
        raise SubmissionError(type_name, message)

    return remote
