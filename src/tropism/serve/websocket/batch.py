"""Batches: many environments on one socket, stepped by one compiled call."""

import secrets
from typing import Any

import msgspec
import numpy as np

from tropism.core.compiled.batch import batch_program_of
from tropism.core.compiled.packing import WORD, Layout, reader
from tropism.core.episode import check_seed, seed_words
from tropism.core.native.batch_engine import make_batch_engine
from tropism.core.spaces import Dict, Space, Tuple
from tropism.core.transforms.auto_reset import Mode
from tropism.errors import ServerError, StateError, ValidationError
from tropism.serve.session.environment import ServedEnvironment, in_thread
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.session.requests import convert
from tropism.wire.arrays import decode_array

MAX_COUNT = 2**16  # environments in one batch
MAX_BYTES = 2**28  # of one batch


class OpenBatch(msgspec.Struct, forbid_unknown_fields=True):
    """`seeds`: one for each environment, or one number s for s, s + 1, …"""

    count: int
    seeds: list[int] | int | None = None
    mode: Mode = "next_step"


class ResetBatch(msgspec.Struct, forbid_unknown_fields=True):
    seeds: list[int] | int | None = None
    mask: Any = None


class StepBatch(msgspec.Struct, forbid_unknown_fields=True):
    actions: Any


class Batch:
    """`count` environments of one kind; environment i equals a session with seed i. Performs one request at a time."""

    def __init__(self, environment: ServedEnvironment, sessions: SessionRegistry, count: int, mode: Mode):
        env, params = environment.env, environment.params
        self.count = count
        self._threads = sessions.threads
        self._space = env.action_space(params)
        self._mode = mode
        if batch_program_of(env, Layout(params), count, mode).layout.size * WORD > MAX_BYTES:
            raise ValidationError("count", count, f"fewer: a batch may use {MAX_BYTES} bytes")
        self._engine = make_batch_engine(env, params, count, mode, environment.engine)
        self._finished = np.zeros(count, bool)
        self._read = {name: reader(slots) for name, slots in self._engine.program.out._asdict().items() if slots}

    @classmethod
    async def open(cls, environment: ServedEnvironment, data: dict[str, Any], sessions: SessionRegistry) -> "Batch":
        request = convert(data, OpenBatch)
        if not environment.env.pure:
            raise ServerError("VALIDATION_ERROR", f"{environment.id} is a host environment: open sessions one by one")
        if sessions.recordings.records:
            raise ServerError("VALIDATION_ERROR", "this server records, and batches are not recorded: open sessions")
        if not 1 <= request.count <= MAX_COUNT:
            raise ValidationError("count", request.count, f"1 to {MAX_COUNT}")
        seeds = _seeds(request.seeds, request.count, needed=True)
        batch = await in_thread(sessions.threads, cls, environment, sessions, request.count, request.mode)
        await in_thread(sessions.threads, batch._begin, seeds, np.ones(request.count, bool))
        return batch

    def reset_reply(self) -> dict[str, Any]:
        """The reply to a reset."""
        words = self._engine.words
        info_values = self._read["info"](words) if "info" in self._read else {}
        info = {name: info_values[name] for name in self._engine.program.reset_info}
        return {"count": self.count, "observation": self._read["obs"](words), "info": info}

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        request = convert(data, ResetBatch)
        mask = np.ones(self.count, bool) if request.mask is None else decode_array(request.mask, "mask")
        if mask.dtype != bool or mask.shape != (self.count,):
            raise ValidationError("mask", request.mask, f"{self.count} bools")
        await in_thread(self._threads, self._begin, _seeds(request.seeds, self.count, needed=False), mask)
        return self.reset_reply()

    def _begin(self, seeds: list[int] | None, mask: Any) -> None:
        seeded = np.full(self.count, seeds is not None)
        keys = np.stack([seed_words(seed) for seed in seeds or [0] * self.count])
        self._engine.reset(keys, seeded, mask)
        self._finished = self._finished & ~mask

    async def step(self, data: dict[str, Any]) -> dict[str, Any]:
        actions = self._engine.read_actions(_actions(self._space, convert(data, StepBatch).actions))
        if self._mode == "disabled" and self._finished.any():
            finished = np.flatnonzero(self._finished)
            message = f"cannot step: {finished} have finished; reset those first"
            raise StateError("finished", finished, "reset those first", message)
        return await in_thread(self._threads, self._advance, actions)

    def _advance(self, actions: Any) -> dict[str, Any]:
        self._engine.step(actions)
        words = self._engine.words
        out = {name: read(words) for name, read in self._read.items()}
        out["observation"] = out.pop("obs")
        self._finished = out["terminated"] | out["truncated"]
        return out


def _seeds(seeds: list[int] | int | None, count: int, *, needed: bool) -> list[int] | None:
    if seeds is None:
        return [secrets.randbits(64) for _ in range(count)] if needed else None
    if isinstance(seeds, int):
        return [check_seed(seeds) + number for number in range(count)]
    if len(seeds) != count:
        raise ValidationError("seeds", len(seeds), f"{count} seeds, or one number")
    return [check_seed(seed) for seed in seeds]


def _actions(space: Space, data: Any) -> Any:
    """Stacked actions, with the structure of the space."""
    if isinstance(space, Dict):
        if not isinstance(data, dict) or set(data) != set(space.keys_):
            raise ValidationError("actions", data, f"a map of {', '.join(space.keys_)}")
        return {name: _actions(part, data[name]) for name, part in space.spaces.items()}
    if isinstance(space, Tuple):
        if not isinstance(data, list) or len(data) != len(space.spaces):
            raise ValidationError("actions", data, f"a list of {len(space.spaces)} arrays")
        return tuple(_actions(part, item) for part, item in zip(space.spaces, data, strict=True))
    return decode_array(data, "actions")
