"""A law is a function of a context that returns a finding; most laws are checked on random episodes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from tropism.check.context import SHORT, CheckContext
from tropism.check.finding import Finding, attempt

NUM_SEEDS = 2
MAX_TRIALS = 60  # attempts to shorten an example
LONGEST_EXAMPLE = 20  # actions shown in full

Check = Callable[[CheckContext], Finding | None]
EpisodeCheck = Callable[[CheckContext, int, list[Any]], Finding | None]


class Law(NamedTuple):
    """A law is checked only if the laws it depends on hold, so that one fault is reported once."""

    check: Check
    name: str
    statement: str
    depends_on: tuple[str, ...]
    skip_reason: Callable[[CheckContext], str | None]


def law(
    name: str, statement: str, *depends_on: str, skip: Callable[[CheckContext], str | None] = lambda _: None
) -> Callable[[Check], Law]:
    """Declare the decorated check as a law; `skip` returns why it does not apply to an environment."""
    return lambda check: Law(check, name, statement, depends_on, skip)


def unless_pure(context: CheckContext) -> str | None:
    return None if context.pure else "host environment"


def unless_seedable(context: CheckContext) -> str | None:
    """For the laws that compare two runs of one seed."""
    return None if context.env.traits.seedable else "its resets take no seed"


def on_episodes(num_steps: int | None = SHORT, place: str = "step") -> Callable[[EpisodeCheck], Check]:
    """Run the decorated check on random actions, and shrink those that fail; without `num_steps`, on the length
    given to `check_environment`. `place` is reported for an exception raised outside the environment's methods."""

    def decorate(check: EpisodeCheck) -> Check:
        def check_episodes(context: CheckContext) -> Finding | None:
            for seed in range(context.seed, context.seed + NUM_SEEDS):
                actions = context.actions(seed, num_steps or context.num_steps)
                finding = attempt(partial(check, context, seed, actions), place)
                if finding is not None:
                    finding, actions = _shrink(partial(check, context, seed), finding, actions)
                    return with_example(context, finding, seed, actions)
            return None

        return check_episodes

    return decorate


def with_example(context: CheckContext, finding: Finding, seed: int, actions: list[Any]) -> Finding:
    """The finding with the seed and actions that lead to it."""
    shown = [context.action_space.to_json(action) for action in actions[:LONGEST_EXAMPLE]]
    more = f" and {len(actions) - LONGEST_EXAMPLE} more" if len(actions) > LONGEST_EXAMPLE else ""
    space = "\n" if "\n" in finding.message else " "
    return finding._replace(message=f"{finding.message}{space}(seed {seed}, actions {shown}{more})")


def _shrink(
    check: Callable[[list[Any]], Finding | None], finding: Finding, actions: list[Any]
) -> tuple[Finding, list[Any]]:
    """The shortest prefix of `actions` that fails in the same place, without the actions that do not matter."""
    candidates = _prefixes(actions)
    for _ in range(MAX_TRIALS):
        fewer = next(candidates, None)
        if fewer is None:
            break
        found = attempt(partial(check, fewer), finding.place)
        if found is not None and found.place == finding.place:
            finding, actions = found, fewer
            candidates = _without_one(actions)  # an action that was needed before may not be any more
    return finding, actions


def _prefixes(actions: list[Any]) -> Iterator[list[Any]]:
    length = 0
    while length < len(actions):
        yield actions[:length]
        length = 2 * length or 1
    yield from _without_one(actions)


def _without_one(actions: list[Any]) -> Iterator[list[Any]]:
    for i in reversed(range(len(actions))):
        yield actions[:i] + actions[i + 1 :]
