"""Laws of determinism: purity, same-seed, global-state, episodes, instances."""

import copy
from functools import partial
from itertools import chain, repeat
from typing import Any

from tropism.check.compare import compare_runs, difference, to_host
from tropism.check.context import SHORT, Calls, CheckContext, calls_of, episode
from tropism.check.law import law, on_episodes
from tropism.check.law_error import LawError
from tropism.core.session.session import EnvironmentState


@law("purity", "reset and step do not change their inputs", "spaces", "flags")
@on_episodes(5)
def check_purity(context: CheckContext, seed: int, actions: list[Any]) -> None:
    """A host environment may change its state, but not its action and params."""

    def call(name: str, key: Any, state: Any = None, action: Any = None) -> Any:
        inputs = {"params": context.params, "action": action, "state": state if context.pure else None}
        before = to_host(inputs)
        result = context.plain.reset(key) if name == "reset" else context.plain.step(key, state, action)
        found = difference(inputs, before)
        if found is not None:
            raise LawError(name, f"{name} changed its input: {found}")
        return result

    list(context.play(Calls(partial(call, "reset"), partial(call, "step")), seed, actions))


@law("same-seed", "the same seed and actions give the same episode", "purity", needs=("seedable",))
@on_episodes()
def check_same_seed(context: CheckContext, seed: int, actions: list[Any]) -> None:
    if context.pure and not context.compiles:
        return  # where compilation fails, only plain calls are left, which the next law covers
    actions = _without_last_step(context, seed, actions)
    first = list(context.run(context.fast, seed, actions))
    compare_runs(context.run(context.fast, seed, actions), first)


@law("global-state", "an episode depends only on its arguments, not on global state", "same-seed", needs=("seedable",))
@on_episodes()
def check_global_state(context: CheckContext, seed: int, actions: list[Any]) -> None:
    """Plain calls read global state that compilation would freeze: counters, clocks, global generators."""
    others = _without_last_step(context, seed + 1, context.actions(seed + 1, len(actions)))
    actions = _without_last_step(context, seed, actions)
    before = hash(context.env)
    first = context.cached_run(context.plain, seed, actions)
    other = chain(context.run(context.plain, seed + 1, others), repeat(None))
    again = [record for record, _ in zip(context.run(context.plain, seed, actions), other, strict=False)]
    if hash(context.env) != before:
        raise LawError("step", "the environment object changed during the steps: its hash differs")
    compare_runs(again, first)


def _without_last_step(context: CheckContext, seed: int, actions: list[Any]) -> list[Any]:
    """The actions without the one that ends the episode: the law `episodes` covers the effects of an end."""
    records = list(context.run(context.fast, seed, actions))
    return actions[: len(records) - 2] if records[-1].done else actions


@law("episodes", "an episode does not affect the next one", "params", needs=("seedable",))
@on_episodes(None, "session")
def check_episodes(context: CheckContext, seed: int, actions: list[Any]) -> None:
    with context.session() as session:
        whole = [to_host(timestep) for timestep in episode(session, seed, actions)]
        ended = session.lifecycle is not EnvironmentState.READY
        again = [to_host(timestep) for timestep in episode(session, seed, actions[:SHORT])]
    first, separate = whole[: 1 + SHORT], context.run_session(seed, actions[:SHORT])
    after = f"after an episode of {len(whole) - 1} steps{'' if ended else ' cut short'}, "
    compare_runs(again, first, after)
    compare_runs(separate, first, after)


@law("instances", "two environments or sessions do not affect each other", "episodes", needs=("seedable",))
@on_episodes(place="session")
def check_instances(context: CheckContext, seed: int, actions: list[Any]) -> None:
    twin = context.run(calls_of(copy.deepcopy(context.env), context.params), seed, actions)
    compare_runs(twin, context.cached_run(context.plain, seed, actions), "an equal environment behaves differently: ")
    alone = context.run_session(seed, actions)
    with context.session() as second:
        others = episode(second, seed + 1, context.actions(seed + 1, len(actions)))
        interleaved = context.run_session(seed, actions, lambda _session, _obs: next(others, None))
    compare_runs(interleaved, alone, "interleaved with a second session, ")
