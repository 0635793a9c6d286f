"""Who acts in the episodes of `tropism record`: the policies of `tropism evaluate` that play in this process."""

import inspect
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from tropism.cli.terminal import load
from tropism.errors import MissingExtraError, ValidationError

DRAWN = 256  # random actions at a time
SERVED = (
    "one that plays here: a language model plays over a server, which can record it "
    "(`tropism serve ID --record DIR`, then `tropism evaluate URL --policy llm:MODEL@URL`)"
)


class Policy(NamedTuple):
    """What is called with the seed of each episode, and what acts on an observation."""

    begin: Callable[[int], None]
    act: Callable[[Any], Any]


def policy_of(name: str, session: Any, greedy: bool) -> Policy:
    """The policy that a name means in this session; `random` and plain functions need no extra."""
    if name == "random":
        return _chance(session.action_space)
    if name.startswith("llm:"):
        raise ValidationError("policy", name, SERVED)
    try:
        from tropism.plume.strategies import Strategy
        from tropism.train.policies import Solo, named
        from tropism.train.runner import Here
    except ImportError as error:
        return _function(name, error)
    who = named(name, session.env, session.params, greedy)
    player, table = Solo(who) if isinstance(who, Strategy) else who, Here(session)
    return Policy(player.begin, lambda _: player.act(table.now()))


def _function(name: str, missing: ImportError) -> Policy:
    made = load(name) if ":" in name else None
    if not inspect.isroutine(made):
        wanted = 'pip install "tropism[train,client]"'
        message = f"the policy {name} needs more than is installed ({missing}): {wanted}"
        raise MissingExtraError("policy", name, wanted, message) from missing
    return Policy(lambda _: None, made)


def _chance(space: Any) -> Policy:
    """The actions that random play has in `tropism evaluate`, too; here they are drawn many at a time."""
    import jax.numpy as jnp

    from tropism.core.episode import seed_words
    from tropism.core.rollout.episodes import policy_key

    draw = _drawing(space)
    actions: Iterator[Any] = iter(())

    def begin(seed: int) -> None:
        nonlocal actions
        actions = draw(policy_key(jnp.asarray(seed_words(seed))))

    return Policy(begin, lambda _: next(actions))


def _drawing(space: Any) -> Callable[[Any], Iterator[Any]]:
    """From the key of an episode to its actions, one for each step; a draw costs as much as a hundred."""
    import jax
    import jax.numpy as jnp

    def one(key: Any, step: Any) -> Any:
        return space.sample(jax.random.fold_in(key, step))

    several = jax.jit(jax.vmap(one, in_axes=(None, 0)))

    def many(key: Any) -> Iterator[Any]:
        for first in count(0, DRAWN):
            drawn = jax.device_get(several(key, jnp.arange(first, first + DRAWN)))
            yield from (space.coerce(jax.tree.map(lambda leaf, i=i: leaf[i], drawn)) for i in range(DRAWN))

    try:
        space.sample(jax.random.key(0), (1,))
    except ValidationError:  # words and messages, which do not stack
        return lambda key: (one(key, step) for step in count())
    return many
