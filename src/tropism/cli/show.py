"""The command show: spaces, params, arguments and reset options of an environment."""

import ast
import dataclasses
import inspect
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from io import StringIO
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Id,
    Params,
    console,
    environment,
    load_class,
    print_engines,
    print_json,
)


class Param(NamedTuple):
    """A numeric param: its dotted name, its value, and the comment at its definition."""

    name: str
    value: Any
    comment: str


def show(id: Id, param: Params = None, arg: Arguments = None, as_json: AsJson = False) -> None:
    """Describe an environment: task, spaces, params, arguments and reset options.

    Example: tropism show CartPole-v1
    Example: tropism show my_package.maze:Maze
    """
    from tropism.core.engines import describe_engines

    env, params = environment(id, param, arg)
    factory = _factory(id)
    about = {
        "id": id,
        "kind": "pure" if env.pure else "host",
        "engines": describe_engines(env, params),
        "description": _description(factory),
        "observation_space": str(env.observation_space(params)),
        "observation_names": _names(env.language.observations, env.observation_space(params)),
        "action_space": str(env.action_space(params)),
        "action_names": _names(env.language.actions, env.action_space(params)),
        "params": [each._asdict() for each in walk_params(params)],
        "arguments": _arguments(factory),
        "reset_options": list(env.reset_options),
    }
    if as_json:
        print_json(about)
    else:
        _print(about)


def _names(words: tuple[str, ...], space: Any) -> list[str]:
    """The names of actions or entries, or the fields of a record."""
    return list(words) or list(space.json_schema().get("properties", ()))


def _factory(id: str) -> Any:
    """The class or function that creates the environment."""
    from tropism.core.registry import find

    return load_class(id) if ":" in id else find(id).factory


def _description(factory: Any) -> str:
    """The docstring of the module, if it starts with the name of the class, and of the class or function."""
    own = inspect.cleandoc(factory.__doc__ or "")
    module = inspect.cleandoc(getattr(sys.modules.get(factory.__module__), "__doc__", None) or "")
    title = f"{factory.__name__}: "
    task = module.removeprefix(title)
    parts = [task[:1].upper() + task[1:]] if task != module else []
    parts += [own] if own and not own.startswith(f"{factory.__name__}(") else []  # not the signature of a dataclass
    paragraphs = "\n\n".join(parts).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _arguments(factory: Any) -> dict[str, Any]:
    """Constructor arguments and their defaults."""
    required = inspect.Parameter.empty
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: "required" if p.default is required else p.default for p in parameters if p.kind != p.VAR_KEYWORD}


def walk_params(params: Any, prefix: str = "") -> Iterator[Param]:
    """All numbers that `--param` can change, nested ones by dotted names."""
    comments = field_comments(type(params))
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if dataclasses.is_dataclass(value):
            yield from walk_params(value, f"{prefix}{field.name}.")
        elif not field.metadata.get("static", False) and _is_numeric(value):
            yield Param(prefix + field.name, value, comments.get(field.name, ""))


def _is_numeric(value: Any) -> bool:
    entries = value if isinstance(value, tuple) else (value,)
    return bool(entries) and all(isinstance(entry, int | float) or hasattr(entry, "dtype") for entry in entries)


def field_comments(cls: type) -> dict[str, str]:
    """The comment on the line of each dataclass field, including base classes; empty without source code."""
    comments: dict[str, str] = {}
    for kind in reversed(cls.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(kind))
        except (OSError, TypeError):
            continue
        comments |= _comments(source)
    return comments


def _comments(source: str) -> dict[str, str]:
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    by_line = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    [definition] = ast.parse(source).body
    fields = [node for node in definition.body if isinstance(node, ast.AnnAssign)]  # pyright: ignore
    return {ast.unparse(field.target): by_line[field.lineno] for field in fields if field.lineno in by_line}


def _print(about: dict[str, Any]) -> None:
    console.print(f"[bold]{escape(about['id'])}[/] ({about['kind']})", highlight=False)
    print_engines(about["engines"])
    console.print()
    console.print(about["description"] + "\n", highlight=False, markup=False)
    spaces = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name in ("observation", "action"):
        spaces.add_row(name, escape(about[f"{name}_space"]))
        if about[f"{name}_names"]:
            spaces.add_row("", escape(", ".join(about[f"{name}_names"])))
    console.print(spaces)
    if about["params"]:
        table = Table("param", "default", "unit and meaning", title="--param NAME=NUMBER", title_justify="left")
        for each in about["params"]:
            table.add_row(each["name"], escape(_short(each["value"])), escape(each["comment"]))
        console.print(table)
    if about["arguments"]:
        table = Table("argument", "default", title="--arg NAME=VALUE", title_justify="left")
        for name, default in about["arguments"].items():
            table.add_row(name, escape(_short(default)))
        console.print(table)
    console.print(f"reset options: {', '.join(about['reset_options']) or 'none'}", highlight=False)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
