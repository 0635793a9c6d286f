"""The XLA engine of a pure environment: a compiled program on one packed buffer."""

import struct
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.packing import WORD, reader
from tropism.core.compiled.program import host_device, program_of
from tropism.core.environment import Environment
from tropism.core.episode import Timestep, seed_from_words, seed_words
from tropism.core.spaces import Box, Discrete, Space
from tropism.errors import ValidationError

LARGEST_ACTION_TABLE = 4096
OUTCOME = struct.Struct("<f?3x?3x")  # reward, terminated, truncated: adjacent, one word each
HEAD = struct.Struct("<2Ii")  # key, time: the first words of an episode


class XlaEngine:
    """Runs a pure environment by XLA: one packed buffer, one dispatch per step."""

    is_damaged = False

    def __init__(self, env: Environment, params: Any):
        self.env = env
        self.program = program_of(env, params)
        self._put_params(params)
        self._buffer: Any = None
        self._read_action = self._make_action_reader(env.action_space(params))
        slots = self.program.timestep
        self._read_obs = reader(slots.obs, keep_dtype=True)
        self._read_info = reader(slots.info) if slots.info else _no_info
        self._read_first_info = reader({name: slots.info[name] for name in self.program.reset_info})
        self._read_state = reader(self.program.head.structure(self.program.head.slots).state)
        self._outcome_at = slots.reward.start * WORD

    def _put_params(self, params: Any) -> None:
        self._episode_params = params
        self._set_packed_params(self.program.params_layout.write(params))

    def _set_packed_params(self, packed: tuple[Any, ...]) -> None:
        self._params = jax.device_put(packed, host_device())

    @property
    def words(self) -> NDArray[Any]:
        """The packed buffer, valid until the next step or reset."""
        return np.asarray(self._buffer)

    def set_words(self, words: Any) -> None:
        self._buffer = jax.device_put(words, host_device())

    def _make_action_reader(self, space: Space) -> Callable[[Any], Any]:
        """Actions of a small space that are already on the device save a transfer per step."""
        read = action_reader(space)
        if not isinstance(space, Discrete):
            return read
        if space.n > LARGEST_ACTION_TABLE:
            return lambda action: np.int32(read(action))
        table = {a: jax.device_put(np.int32(a), host_device()) for a in range(space.start, space.start + space.n)}
        return lambda action: table[read(action)]

    def reset(self, seed: int, params: Any, options: Mapping[str, Any]) -> Timestep:
        self._use_params(params)
        self._reset(seed_words(seed))
        return self._first()

    def _reset(self, key: NDArray[Any]) -> None:
        self._buffer = self.program.reset(key, self._params)

    def reset_next(self, params: Any, options: Mapping[str, Any]) -> tuple[int, Timestep]:
        self._use_params(params)
        self._reset_next()
        return seed_from_words(HEAD.unpack_from(self._buffer)), self._first()

    def _reset_next(self) -> None:
        self._buffer = self.program.reset_next(self._buffer, self._params)

    def _use_params(self, params: Any) -> None:
        if params is not self._episode_params:
            self._put_params(params)

    def step(self, action: Any) -> Timestep:
        self._buffer = self.program.step(self._buffer, self._read_action(action), self._params)
        return self._read()

    def last(self) -> Timestep:
        time = HEAD.unpack_from(self._buffer)[2]
        return self._read() if time > 0 else self._first()

    def _first(self) -> Timestep:
        words = memoryview(self._buffer)
        return Timestep(self._read_obs(words), 0.0, False, False, self._read_first_info(words))

    def _read(self) -> Timestep:
        words = memoryview(self._buffer)
        reward, terminated, truncated = OUTCOME.unpack_from(words, self._outcome_at)
        return Timestep(self._read_obs(words), reward, terminated, truncated, self._read_info(words))

    def params(self) -> Any:
        """The params of this episode."""
        if self._episode_params is None:
            self._episode_params = self.program.params_layout.read(self._params)
        return self._episode_params

    def state(self) -> Any:
        return self._read_state(memoryview(self._buffer))

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(state, params, *arguments)`, compiled, as a function of the arguments in the current state."""
        unpack, unpack_params = self.program.head.unpack, self.program.params_layout.unpack
        compiled = jax.jit(lambda words, params, *rest: function(unpack(words).state, unpack_params(params), *rest))
        return lambda *arguments: compiled(self._buffer, self._params, *arguments)

    def render(self) -> Any:
        frame = self.program.render(self._buffer, self._params)
        return None if frame is None else np.array(frame)

    def new_like(self) -> Self:
        """An engine for the same environment that shares everything immutable."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def restore_point(self) -> Callable[[], Self]:
        return self.new_like().new_like

    def fork(self, seed: int | None) -> Self:
        twin = self.new_like()
        if seed is not None:
            twin.reseed(seed)
        return twin

    def reseed(self, seed: int) -> None:
        words = np.array(self._buffer)
        words[:2] = seed_words(seed)
        self.set_words(words)

    def dump(self) -> tuple[dict[str, Any], bytes]:
        words, *large = self._params
        header = {"layouts": self._layouts(), "large": [_digest(array) for array in large]}
        return header, np.asarray(words).tobytes() + np.asarray(self._buffer).tobytes()

    def load(self, header: dict[str, Any], body: bytes) -> None:
        """Load a dumped episode; it has only digests of large arrays of params, which must be equal here."""
        for name, expected in self._layouts().items():
            _check_layout(name, header["layouts"][name], expected)
        words, *large = self._params
        for digest, array in zip(header["large"], large, strict=True):
            if digest != _digest(array):
                raise ValidationError("params", array, "the large arrays of the session that made the snapshot")
        dumped = np.frombuffer(body, np.uint32)
        self._set_packed_params((dumped[: words.size], *large))
        self._episode_params = None
        self.set_words(dumped[words.size :])

    def _layouts(self) -> dict[str, dict[str, str]]:
        return {"params": self.program.params_layout.signature, "episode": self.program.layout.signature}

    def close(self) -> None:
        self._buffer = None


def _no_info(_: Any) -> dict[str, Any]:
    return {}


def _check_layout(name: str, stored: dict[str, str], expected: dict[str, str]) -> None:
    """Name the first leaf that differs; order matters, since leaves are packed in this order."""
    for (path, kind), (expected_path, expected_kind) in zip_longest(
        stored.items(), expected.items(), fillvalue=("nothing", "")
    ):
        if (path, kind) != (expected_path, expected_kind):
            found, needed = f"{path} {kind}".strip(), f"{expected_path} {expected_kind}".strip()
            raise ValidationError("snapshot", f"{found} in its {name}", f"{needed}, as in this environment")


def _digest(array: Any) -> str:
    return blake2b(np.asarray(array).tobytes(), digest_size=8).hexdigest()


def action_reader(space: Space) -> Callable[[Any], Any]:
    """`space.coerce` as a plain function, with a fast path for the common types."""
    if isinstance(space, Discrete):
        return _discrete_reader(space)
    coerce = space.coerce
    if not isinstance(space, Box):
        return coerce
    shape, dtype, low, high = space.shape, space.dtype, space.low, space.high

    def read(action: Any) -> Any:
        plain = type(action) is np.ndarray and action.dtype == dtype and action.shape == shape
        return action if plain and ((action >= low) & (action <= high)).all() else coerce(action)

    return read


def _discrete_reader(space: Discrete) -> Callable[[Any], int]:
    first, end, coerce = space.start, space.start + space.n, space.coerce

    def read(action: Any) -> int:
        if type(action) is int and first <= action < end:
            return action
        if type(action) is np.int64 and first <= (whole := int(action)) < end:  # what Gymnasium's spaces sample
            return whole
        return coerce(action)

    return read
