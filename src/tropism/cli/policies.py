"""Policies of `tropism record` and `tropism render`: those of `tropism evaluate` that run in this process."""

import inspect
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from tropism.cli.terminal import load_class
from tropism.errors import MissingExtraError, ValidationError

DRAW_SIZE = 256  # random actions per draw
NOT_REMOTE = (
    "a policy that runs in this process; a language model needs a server, which can record its episodes "
    "(`tropism serve ID --record DIR`, then `tropism evaluate URL --policy llm:MODEL@URL`)"
)


class SessionPolicy(NamedTuple):
    """`begin` is called with the seed of each episode, `act` with each observation."""

    begin: Callable[[int], None]
    act: Callable[[Any], Any]


def policy_of(name: str, session: Any, greedy: bool) -> SessionPolicy:
    """The policy of this name for a session; `random` and plain functions need no extra."""
    if name == "random":
        return _random_policy(session.action_space)
    if name.startswith("llm:"):
        raise ValidationError("policy", name, NOT_REMOTE)
    try:
        from tropism.core.rollout.policy import Policy
        from tropism.train.policies import SteppedPolicy, resolve_policy
        from tropism.train.runner import LocalRunner
    except ImportError as error:
        return _function_policy(name, error)
    policy = resolve_policy(name, session.env, session.params, greedy)
    host_policy = SteppedPolicy(policy) if isinstance(policy, Policy) else policy
    runner = LocalRunner(session)
    return SessionPolicy(host_policy.begin, lambda _: host_policy.act(runner.current()))


def _function_policy(name: str, missing: ImportError) -> SessionPolicy:
    target = load_class(name) if ":" in name else None
    if not inspect.isroutine(target):
        command = 'pip install "tropism[train,client]"'
        message = f"the policy {name} needs more than is installed ({missing}): {command}"
        raise MissingExtraError("policy", name, command, message) from missing
    return SessionPolicy(lambda _: None, target)


def _random_policy(space: Any) -> SessionPolicy:
    """The same random actions as in `tropism evaluate`, drawn many at a time."""
    import jax.numpy as jnp

    from tropism.core.episode import seed_words
    from tropism.core.rollout.episodes import policy_key

    draw = _action_stream(space)
    actions: Iterator[Any] = iter(())

    def begin(seed: int) -> None:
        nonlocal actions
        actions = draw(policy_key(jnp.asarray(seed_words(seed))))

    return SessionPolicy(begin, lambda _: next(actions))


def _action_stream(space: Any) -> Callable[[Any], Iterator[Any]]:
    """A function from an episode's key to its actions; one draw costs as much as a hundred."""
    import jax
    import jax.numpy as jnp

    def one(key: Any, step: Any) -> Any:
        return space.sample(jax.random.fold_in(key, step))

    several = jax.jit(jax.vmap(one, in_axes=(None, 0)))

    def many(key: Any) -> Iterator[Any]:
        for first in count(0, DRAW_SIZE):
            drawn = jax.device_get(several(key, jnp.arange(first, first + DRAW_SIZE)))
            yield from (space.coerce(jax.tree.map(lambda leaf, i=i: leaf[i], drawn)) for i in range(DRAW_SIZE))

    try:
        space.sample(jax.random.key(0), (1,))
    except ValidationError:  # text and messages, which do not stack
        return lambda key: (one(key, step) for step in count())
    return many
