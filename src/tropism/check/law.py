"""A law is a function of a context that raises a LawError; most laws are checked on random episodes."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from tropism.check.context import SHORT, CheckContext
from tropism.check.law_error import LawError, attempt
from tropism.core.environment import Environment

NUM_SEEDS = 2
MAX_TRIALS = 60  # attempts to shorten an example
LONGEST_EXAMPLE = 20  # actions shown in full

Check = Callable[[CheckContext], None]
EpisodeCheck = Callable[[CheckContext, int, list[Any]], None]
Need = Literal["pure", "seedable", "replayable", "ending"]

# What a law may need of an environment, and the reason for skipping it if that is missing.
NEEDS: dict[Need, tuple[Callable[[Environment], bool], str]] = {
    "pure": (lambda env: env.pure, "host environment"),
    "seedable": (lambda env: env.traits.seedable, "its resets take no seed"),
    "replayable": (lambda env: env.traits.replayable, "replayable = False"),
    "ending": (lambda env: not env.endless, "endless = True"),
}


class Law(NamedTuple):
    """A law is checked only if the laws it depends on hold, so that one fault is reported once."""

    check: Check
    name: str
    statement: str
    depends_on: tuple[str, ...]
    needs: tuple[Need, ...]

    def skip_reason(self, context: CheckContext) -> str | None:
        return next((reason for has, reason in map(NEEDS.__getitem__, self.needs) if not has(context.env)), None)


def law(name: str, statement: str, *depends_on: str, needs: tuple[Need, ...] = ()) -> Callable[[Check], Law]:
    """Declare the decorated check as a law."""
    return lambda check: Law(check, name, statement, depends_on, needs)


def on_episodes(num_steps: int | None = SHORT, place: str = "step") -> Callable[[EpisodeCheck], Check]:
    """Run the decorated check on random actions, and shrink those that fail; without `num_steps`, on the length
    given to `check_environment`. `place` is reported for an exception raised outside the environment's methods."""

    def decorate(check: EpisodeCheck) -> Check:
        def check_episodes(context: CheckContext) -> None:
            for seed in range(context.seed, context.seed + NUM_SEEDS):
                actions = context.actions(seed, num_steps or context.num_steps)
                failure = attempt(partial(check, context, seed, actions), place)
                if failure is not None:
                    failure, actions = _shrink(partial(check, context, seed), failure, actions)
                    with example(context, seed, actions):
                        raise failure

        return check_episodes

    return decorate


@contextmanager
def example(context: CheckContext, seed: int, actions: list[Any]) -> Generator[None]:
    """Add the seed and actions to the message of a LawError that is raised."""
    try:
        yield
    except LawError as failure:
        shown = [context.action_space.to_json(action) for action in actions[:LONGEST_EXAMPLE]]
        more = f" and {len(actions) - LONGEST_EXAMPLE} more" if len(actions) > LONGEST_EXAMPLE else ""
        space = "\n" if "\n" in failure.message else " "
        failure.message += f"{space}(seed {seed}, actions {shown}{more})"
        raise


def _shrink(check: Callable[[list[Any]], None], failure: LawError, actions: list[Any]) -> tuple[LawError, list[Any]]:
    """The shortest prefix of `actions` that fails in the same place, without the actions that do not matter."""
    prefixes = (actions[: 2**power - 1] for power in range(len(actions).bit_length()))
    candidates = chain(prefixes, _without_one(actions))
    for _ in range(MAX_TRIALS):
        fewer = next(candidates, None)
        if fewer is None:
            break
        found = attempt(partial(check, fewer), failure.place)
        if found is not None and found.place == failure.place:
            failure, actions = found, fewer
            candidates = _without_one(actions)  # an action that was needed before may not be any more
    return failure, actions


def _without_one(actions: list[Any]) -> Iterator[list[Any]]:
    return (actions[:i] + actions[i + 1 :] for i in reversed(range(len(actions))))
