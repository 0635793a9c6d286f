"""Compares native steps and resets with XLA's, bit for bit, before they are used."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.packing import Layout
from tropism.core.compiled.program import host_device
from tropism.core.episode import seed_words
from tropism.core.native.memory import ProgramMemory
from tropism.core.native.program import NativeProgram
from tropism.core.native.verdicts import Verdict
from tropism.core.spaces import Discrete, Space

STEPS = 10_000  # some environments differ in fewer than one step of 100
ACTIONS = 128  # different ones, in random order
FIRST_SEED = 2**40 + 1
RESET_EVERY = 997  # also in the middle of an episode, so that long ones start from several states


def verify(native: NativeProgram, params: Any, steps: int = STEPS) -> Verdict:
    """Run both at fixed seeds; after a differing reset the step is compared from XLA's state."""
    return _Comparison(native, params).run(steps)


class _Comparison:
    def __init__(self, native: NativeProgram, params: Any):
        self.native = native
        self.program = native.program
        packed = self.program.params_layout.write(params)
        self.memory = ProgramMemory(native, packed)
        self.params = jax.device_put(packed, host_device())
        sampled = sample_actions(self.program.env.action_space(params), ACTIONS)
        self.actions = [(action, jax.device_put(action, host_device())) for action in sampled]
        self.order = np.random.default_rng(0).integers(0, ACTIONS, STEPS)
        self.ends = [slot.start for slot in (self.program.timestep.terminated, self.program.timestep.truncated)]
        self.resets = 0
        self.difference = ""

    def run(self, steps: int) -> Verdict:
        same_reset, buffer = self.reset(None)
        for count in range(steps):
            action, device_action = self.actions[self.order[count % STEPS]]
            buffer = self.program.step(buffer, device_action, self.params)
            self.memory.set_action(action)
            self.native.step(self.memory.address)
            if not self.equal(buffer, f"step {count}"):
                return Verdict(False, same_reset, self.difference)
            if self.memory.words[self.ends].any() or count % RESET_EVERY == RESET_EVERY - 1:
                same, buffer = self.reset(buffer)
                same_reset &= same
        return Verdict(True, same_reset, self.difference)

    def reset(self, buffer: Any) -> tuple[bool, Any]:
        """Start an episode in both: the first from a seed, later ones as the next of the running episode."""
        number, self.resets = self.resets, self.resets + 1
        if buffer is None:
            key = seed_words(FIRST_SEED)
            buffer = self.program.reset(key, self.params)
            self.memory.input[: len(key)] = key
        else:
            buffer = self.program.reset_next(buffer, self.params)
            self.native.next_key(self.memory.address)
        same = True
        if self.native.reset is not None:
            self.native.reset(self.memory.address)
            same = self.equal(buffer, f"reset {number}")
        self.memory.words[:] = buffer
        return same, buffer

    def equal(self, buffer: Any, place: str) -> bool:
        path = first_difference(self.program.layout, np.asarray(buffer), self.memory.words)
        if path and not self.difference:
            self.difference = f"{path} in {place}"
        return not path


def first_difference(layout: Layout, words: NDArray[Any], others: NDArray[Any]) -> str:
    """The path of the first leaf that differs between two packed buffers; empty if all bits are equal."""
    if words.tobytes() == others.tobytes():
        return ""
    word = int(np.flatnonzero(words != others)[0])
    paths = zip(layout.signature, layout.slots, strict=True)
    return next(path for path, slot in paths if word < slot.start + slot.words)


def sample_actions(space: Space, count: int) -> list[Any]:
    """Members of the space, as a session passes them to the step."""
    if isinstance(space, Discrete):
        drawn = np.random.default_rng(1).integers(space.start, space.start + space.n, count)
        return list(drawn.astype(np.int32))
    batch = jax.tree.map(np.asarray, space.sample(jax.random.key(0), (count,)))
    return [space.coerce(jax.tree.map(lambda leaf, number=number: leaf[number], batch)) for number in range(count)]
