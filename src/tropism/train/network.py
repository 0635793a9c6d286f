"""The agent: an actor and a critic, with memory or without, for discrete and continuous actions."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, nn, random
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Box, Discrete, Space
from tropism.errors import ValidationError

ROUNDS = 50  # that make a matrix orthogonal: the smallest singular value grows by a half in each
SMALL = 0.01  # gain of the last layer of the actor: the first actions are as good as random


class Linear(Module):
    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, drawn: Float[Array, "out in"], gain: float):
        self.weight = gain * orthogonal(drawn)
        self.bias = jnp.zeros(len(drawn))

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return x @ self.weight.T + self.bias  # this way round: a batch stays in rows, and nothing is transposed


class Torso(Module):
    """Two layers, and a GRU after them where the agent is recurrent."""

    layers: tuple[Linear, Linear]
    cell: eqx.nn.GRUCell | None

    def __init__(self, first: Float[Array, "hidden in"], second: Float[Array, "hidden hidden"], cell: Any):
        self.layers = (Linear(first, 2**0.5), Linear(second, 2**0.5))
        self.cell = cell

    def __call__(self, memory: Any, x: Any) -> tuple[Any, Any]:
        """`(memory, features)`; an agent without memory carries an empty array."""
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        if self.cell is None:
            return memory, x
        memory = self.cell(x, memory)
        return memory, memory


class Memory(Module):
    """What a recurrent agent carries from step to step; all of it is empty in another."""

    cells: Float[Array, "*batch 2 size"]  # of actor and critic
    action: Float[Array, "*batch actions"]  # the last one: what a smell means depends on the way that was taken

    def where(self, forgotten: Any, blank: "Memory") -> "Memory":
        """A batch of memories, some of them forgotten."""
        return Memory(
            jnp.where(forgotten[:, None, None], blank.cells, self.cells),
            jnp.where(forgotten[:, None], blank.action, self.action),
        )


class Agent(Module):
    """Actor and critic do not share layers, only the observation."""

    actor: Torso
    critic: Torso
    policy: Linear
    value: Linear
    log_std: Float[Array, " actions"]  # of continuous actions; empty otherwise
    hidden: int = eqx.field(static=True)
    recurrent: bool = eqx.field(static=True)

    def __init__(self, obs_size: int, action_space: Space, hidden: int, recurrent: bool, key: Any):
        outputs = num_outputs(action_space)
        obs_size += outputs if recurrent else 0
        key, *cell_keys = random.split(key, 3)
        torso = ((hidden, obs_size), (hidden, hidden))
        first, second, third, fourth, policy, value = normals(key, (*torso, *torso, (outputs, hidden), (1, hidden)))
        cells = [eqx.nn.GRUCell(hidden, hidden, key=key) if recurrent else None for key in cell_keys]
        self.actor = Torso(first, second, cells[0])
        self.critic = Torso(third, fourth, cells[1])
        self.policy = Linear(policy, SMALL)
        self.value = Linear(value, 1.0)
        self.log_std = jnp.zeros(outputs if isinstance(action_space, Box) else 0)
        self.hidden = hidden
        self.recurrent = recurrent

    @property
    def obs_size(self) -> int:
        return self.actor.layers[0].weight.shape[-1] - self.memory().action.size

    def memory(self) -> Memory:
        """At the beginning of an episode."""
        if not self.recurrent:
            return Memory(jnp.zeros((2, 0)), jnp.zeros(0))
        return Memory(jnp.zeros((2, self.hidden)), jnp.zeros_like(self.policy.bias))

    def __call__(self, memory: Memory, x: Any) -> tuple[Memory, Any, Any]:
        """`(memory, outputs of the actor, value)` of one observation; `Actions.remember` what is done about it."""
        x = jnp.concatenate([x, memory.action])
        seen, features = self.actor(memory.cells[0], x)
        judged, judgement = self.critic(memory.cells[1], x)
        return Memory(jnp.stack([seen, judged]), memory.action), self.policy(features), self.value(judgement)[0]


def normals(key: Any, shapes: tuple[tuple[int, int], ...]) -> list[Float[Array, "out in"]]:
    """Matrices of one draw, since every draw by itself takes its time to compile."""
    sizes = [math.prod(shape) for shape in shapes]
    drawn = jnp.split(random.normal(key, (sum(sizes),)), list(itertools.accumulate(sizes[:-1])))
    return [numbers.reshape(shape) for numbers, shape in zip(drawn, shapes, strict=True)]


def orthogonal(drawn: Float[Array, "out in"]) -> Float[Array, "out in"]:
    """Normal numbers as the nearest matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014).

    By products alone (Björck and Bowie 1971): each takes all singular values nearer to 1, from anywhere between 0
    and √3. A decomposition would take half a second longer to compile.
    """
    wide = drawn.shape[0] < drawn.shape[1]
    tall = drawn.T if wide else drawn
    first = tall / jnp.linalg.norm(tall)
    q = lax.fori_loop(0, ROUNDS, lambda _, q: 1.5 * q - 0.5 * q @ (q.T @ q), first)
    return q.T if wide else q


def num_outputs(space: Space) -> int:
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, Box) and space.dtype.kind == "f":
        return math.prod(space.shape)
    raise ValidationError("action_space", space, "Discrete, or a Box of real numbers: PPO acts in no other")


class Actions(Module):
    """How actions are drawn from the actor's outputs, and how likely they were."""

    space: Space

    def draw(self, key: Any, agent: Agent, outputs: Any) -> Any:
        """An action as the network means it: a number, or an array whose box is -1 to 1."""
        if isinstance(self.space, Discrete):
            return random.categorical(key, outputs)
        return outputs + jnp.exp(agent.log_std) * random.normal(key, outputs.shape)

    def best(self, outputs: Any) -> Any:
        return jnp.argmax(outputs) if isinstance(self.space, Discrete) else outputs

    def remember(self, memory: Memory, action: Any) -> Memory:
        """The memory of an agent that has just chosen an action."""
        if not memory.action.size:
            return memory
        discrete = isinstance(self.space, Discrete)
        code = nn.one_hot(action, memory.action.size) if discrete else jnp.clip(action, -1, 1)
        return Memory(memory.cells, code.astype(memory.action.dtype))

    def played(self, action: Any) -> Any:
        """The action as the environment takes it."""
        if isinstance(self.space, Discrete):
            return (action + self.space.start).astype(jnp.int32)
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)  # pyright: ignore
        action = action.reshape(self.space.shape or ())
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        inside = jnp.clip(low + (jnp.clip(action, -1, 1) + 1) / 2 * (high - low), low, high)
        return jnp.where(bounded, inside, jnp.clip(action, low, high)).astype(self.space.dtype)

    def log_prob(self, agent: Agent, outputs: Any, action: Any) -> tuple[Any, Any]:
        """`(log probability, entropy)` of one action."""
        if isinstance(self.space, Discrete):
            logits = nn.log_softmax(outputs)
            return logits[action], -jnp.sum(jnp.exp(logits) * logits)
        z = (action - outputs) / jnp.exp(agent.log_std)
        size = 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(-0.5 * z**2 - agent.log_std - size), jnp.sum(agent.log_std + 0.5 + size)


def flat(obs: Any) -> Float[Array, " size"]:
    """An observation as one vector of real numbers."""
    leaves = [jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(obs)]
    return jnp.concatenate(leaves) if len(leaves) > 1 else leaves[0]
