"""Tasks for `Coding-v0`: a prompt and hidden tests of the functions to write."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tropism.errors import ValidationError
from tropism.sandbox.files import check_path

SEEDED_TESTS = 8
COMMAND = "a command such as 'python -m unittest' or 'python tests/run.py'"

Files = tuple[tuple[str, bytes], ...]  # paths in the workspace, and contents


def split_command(command: str) -> list[str]:
    """The arguments of Python in a test command."""
    try:
        program, *words = shlex.split(command) or [""]
    except ValueError:
        raise ValidationError("command", command, COMMAND) from None
    module = words[:1] == ["-m"] and len(words) > 1
    if program not in ("python", "python3") or not words or (words[0].startswith("-") and not module):
        raise ValidationError("command", command, COMMAND)
    return words


@dataclass(frozen=True)
class Task:
    """`functions` are the names that a submission must define; each test is Python that calls them and raises
    if a result is wrong. Arguments and results are plain values: numbers, strings, bytes and collections of them.
    Any exception of the submission is a `SubmissionError` in a test, with the name of its type in `name`.

    `examples` are tests that the agent sees. `submissions` is how many an episode may have; with `feedback`, each
    shows which tests it passed.

    A task with a `command` is a small repository instead: the workspace has its `files` from the beginning. A
    submission adds `hidden_files`, which replace the agent's, and passes if the command, such as
    "python -m unittest", exits with 0. The hidden files run in a sandbox of their own and import the agent's modules
    from another one. With `shared_interpreter`, which some tests need, and without hidden files, both run in one
    interpreter, where code can make its own tests pass."""

    name: str
    prompt: str
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    submissions: int = 1
    feedback: bool = False
    command: str = ""
    shared_interpreter: bool = False
    files: Files = ()
    hidden_files: Files = ()

    def __post_init__(self) -> None:
        if self.command:
            split_command(self.command)
        elif not (self.functions and self.tests) or self.files or self.hidden_files or self.shared_interpreter:
            raise ValidationError("task", self.name, "functions and tests, or a command, which may have files")
        for path, _ in (*self.files, *self.hidden_files):
            check_path(path)

    @property
    def instructions(self) -> str:
        """The prompt with the examples."""
        return "\n\n".join([self.prompt, "Examples:", *self.examples] if self.examples else [self.prompt])


@dataclass(frozen=True)
class Exercise:
    """A task whose hidden tests are drawn from the episode's seed and solved by a reference."""

    reference: Callable[..., Any]
    prompt: str = field(compare=False)
    arguments: Callable[[Random], tuple[Any, ...]] = field(compare=False)
    edges: tuple[tuple[Any, ...], ...] = field(compare=False)

    def task(self, random: Random) -> Task:
        name = self.reference.__name__
        cases = [*self.edges, *(self.arguments(random) for _ in range(SEEDED_TESTS))]
        tests = [f"assert {name}(*{case!r}) == {self.reference(*case)!r}" for case in cases]
        return Task(name, f"Write a function `{name}`. {self.prompt}", (name,), tuple(tests))


def sum_of_evens(numbers: Sequence[int]) -> int:
    return sum(number for number in numbers if number % 2 == 0)


def run_lengths(text: str) -> list[tuple[str, int]]:
    return [(run[0], len(run)) for run in (match[0] for match in re.finditer(r"(.)\1*", text, re.DOTALL))]


def is_balanced(text: str) -> bool:
    open_brackets: list[str] = []
    for character in text:
        if character in "([{":
            open_brackets.append(character)
        elif character in ")]}" and (not open_brackets or open_brackets.pop() + character not in ("()", "[]", "{}")):
            return False
    return not open_brackets


def merge_intervals(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def roman(number: int) -> str:
    letters = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
    result = ""
    for letter, value in zip(letters, (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), strict=True):
        result += letter * (number // value)
        number %= value
    return result


def _numbers(random: Random) -> tuple[list[int]]:
    return ([random.randint(-99, 99) for _ in range(random.randint(0, 12))],)


def _intervals(random: Random) -> tuple[list[tuple[int, int]]]:
    starts = [random.randint(0, 40) for _ in range(random.randint(0, 8))]
    return ([(start, start + random.randint(0, 9)) for start in starts],)


def _text(letters: str, random: Random) -> tuple[str]:
    return ("".join(random.choices(letters, k=random.randint(0, 14))),)


def _year(random: Random) -> tuple[int]:
    return (random.randint(1, 3999),)


BUILT_IN = (
    Exercise(
        sum_of_evens,
        "It takes a list of whole numbers and returns the sum of the even ones.",
        _numbers,
        (([],),),
    ),
    Exercise(
        run_lengths,
        "It takes a string and returns its runs of equal characters, in order, as a list of tuples "
        "(character, length): 'aab' gives [('a', 2), ('b', 1)].",
        partial(_text, "aab"),
        (("",), ("zzzz",)),
    ),
    Exercise(
        is_balanced,
        "It takes a string and returns whether its brackets (), [] and {} are balanced; all else does not matter.",
        partial(_text, "()[]{x"),
        (("",), ("([)]",), ("{[x()]}",)),
    ),
    Exercise(
        merge_intervals,
        "It takes a list of tuples (start, end) of whole numbers and returns the list of intervals, in order, that "
        "are left when those which overlap or touch are merged.",
        _intervals,
        (([],), ([(1, 4), (4, 5)],), ([(1, 9), (2, 3)],)),
    ),
    Exercise(roman, "It takes a whole number from 1 to 3999 and returns it in Roman numerals.", _year, ((4,), (1994,))),
)

Tasks = tuple[Task | Exercise, ...]
