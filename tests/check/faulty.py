"""Environments with one fault each, listed with the law that must fail."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.core import Tracer
from tests.core.lines import HostLine, Line, LineParams, LineState

from tropism.core.environment import Environment
from tropism.core.spaces import Box, Dict, Space

calls: list[None] = []
finished: list[None] = []
serials: dict[int, int] = {}
workspaces: dict[int, list[int]] = {}
rng = np.random.default_rng(0)


class StoppedClock(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, *rest = super().step(key, state, action, params)
        return obs, LineState(state.time, after.x), *rest


class NoInfo(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step(key, state, action, params)[:4]


class ArrayField(Line):
    mask: Any = (1, 2)

    def __init__(self) -> None:
        self.mask = np.zeros(3)


class ListField(Line):
    walls: Any = (1, 2)

    def __init__(self) -> None:
        self.walls = [1, 2]


class DictInsideField(Line):
    walls: Any = ()

    def __init__(self) -> None:
        self.walls = (1, {"left": 2})


class GymActions(Line):
    def action_space(self, params: Any) -> Any:
        return gymnasium.spaces.Discrete(3)


class GymObservations(Line):
    def observation_space(self, params: Any) -> Any:
        return gymnasium.spaces.Box(-10.0, 10.0, (1,))


class NumberOfActions(Line):
    def action_space(self, params: Any) -> Any:
        return 3


class OldGymStep(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, _, reward, done, info = super().step(key, state, action, params)
        return obs, reward, done, info


class GymnasiumStep(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, _, reward, _, info = super().step(key, state, action, params)
        return obs, reward, info["terminated"], info["truncated"], {}


class GymnasiumReset(Line):
    def reset(self, key: Any, params: Any) -> Any:
        return super().reset(key, params)[0], {}


class GymnasiumSignature(Line):
    def step(self, action: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().step(0, None, action, None)


class BareState(Line):
    """The state is an array, without a clock."""

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        return obs, state.x


class SmallBox(Line):
    """Starts outside its box."""

    def observation_space(self, params: Any) -> Space:
        return Box(5.0, 10.0, (1,))


class LongObservation(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step(key, state, action, params)
        return jnp.concatenate([obs, obs]), *rest


class MovingSpace(Line):
    def observation_space(self, params: Any) -> Space:
        calls.append(None)
        return Box(-10.0, 10.0 + len(calls), (1,))


class ConcreteSpace(Line):
    def observation_space(self, params: Any) -> Space:
        return Box(-10.0, 9.0 + float(params.stride), (1,))


class HalfPrecision(Line):
    def observation(self, state: Any) -> Any:
        return jnp.asarray(state.x, jnp.float16)[None]


class HalfPrecisionInside(Line):
    """An observation with several parts, one of which does not have the dtype of its space."""

    def observation(self, state: Any) -> Any:
        x = jnp.asarray(state.x, jnp.float32)[None]
        return {"near": x, "far": x.astype(jnp.float16)}

    def observation_space(self, params: Any) -> Space:
        return Dict(near=Box(-10.0, 10.0, (1,)), far=Box(-10.0, 10.0, (1,)))


class WholeReward(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, *rest = super().step(key, state, action, params)
        return obs, after, reward.astype(jnp.int32), *rest


class DoneNotSet(Line):
    """The time limit sets `truncated` but not `done`."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, _, info = super().step(key, state, action, params)
        return obs, after, reward, info["terminated"], {**info, "truncated": after.time >= 2}


class ForgetsItsLimit(Line):
    """`done` is only `terminated`; the time limit is reached late in an episode."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, _, info = super().step(key, state, action, params)
        return obs, after, reward, info["terminated"], info


class ForgetsAnUnreachedLimit(ForgetsItsLimit):
    """The same, with a limit that no random episode reaches."""

    def default_params(self) -> LineParams:
        return LineParams(stride=3.0, max_steps=20_000)


class HostForgetsItsLimit(HostLine):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, _, info = super().step(key, state, action, params)
        after.x = min(max(after.x, -2), 2)
        return obs, after, reward, info["terminated"], info


class NanReward(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, *rest = super().step(key, state, action, params)
        return obs, after, jnp.where(after.x > 1.5, jnp.nan, reward), *rest


class RareNanReward(Line):
    """NaN in a few of many episodes."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, *rest = super().step(key, state, action, params)
        return obs, after, jnp.where(jnp.abs(after.x - 2.95) < 0.05, jnp.nan, reward), *rest


class DictState(LineState):
    cache: Any


class ChangesItsState(Line):
    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        return obs, DictState(state.time, state.x, {"x": state.x})

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, *rest = super().step(key, state, action, params)
        state.cache["x"] = after.x
        return obs, DictState(after.time, after.x, state.cache), *rest


class OutsideNoise(Line):
    """Draws from NumPy at run time."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        noise = jax.pure_callback(lambda _: np.float32(rng.normal()), shape, state.x, vmap_method="broadcast_all")
        obs, *rest = super().step(key, state, action, params)
        return obs + noise, *rest


class UnseededHost(HostLine):
    def reset(self, key: Any, params: Any) -> Any:
        _, state = super().reset(key, params)
        state.x = rng.uniform(-1.0, 1.0)  # of many values: two resets that agree by chance would hide the fault
        return self.observation(state), state


class Counter(Line):
    """Counts its calls in Python, which compilation freezes."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        calls.append(None)
        obs, *rest = super().step(key, state, action, params)
        return obs + 1e-3 * (len(calls) % 7), *rest


class OneEpisodeHost(HostLine):
    """Stores the episode in a global, so only one can run."""

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        workspaces[0] = [state.x]
        return obs, state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        state.x = workspaces[0][-1]
        obs, after, *rest = super().step(key, state, action, params)
        workspaces[0].append(after.x)
        return obs, after, *rest


class PythonBranch(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step(key, state, 2 if state.x < -1.0 else action, params)


class PythonNumber(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        x = float(state.x)
        return super().step(key, LineState(state.time, jnp.float32(x)), action, params)


class DetectsTracers(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step(key, state, action, params)
        return obs + isinstance(action, Tracer), *rest


class ChangesDtype(Line):
    def reset(self, key: Any, params: Any) -> Any:
        state = LineState(jnp.int32(0), random.randint(key, (), -1, 2))
        return self.observation(state), state


class Unbatchable(Line):
    """A callback without a vmap method."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, *rest = super().step(key, state, action, params)
        reward = jax.pure_callback(lambda x: np.float32(-abs(x)), jax.ShapeDtypeStruct((), jnp.float32), after.x)
        return obs, after, reward, *rest


class ConcreteParams(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step(key, state, action, params)
        return obs * float(params.stride), *rest


class DefaultParamsUnderTrace(Line):
    """Under a trace, the number comes from the default params."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        known = self.default_params() if isinstance(params.stride, Tracer) else params
        return super().step(key, state, action, known)


class NeverEnds(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        _, after, reward, done, info = super().step(key, state, action, params)
        after = LineState(after.time, jnp.clip(after.x, -2.0, 2.0))
        return self.observation(after), after, reward, done & False, {name: flag & False for name, flag in info.items()}


class EndlessHost(HostLine):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        state.x = 0
        obs, after, reward, _, _ = super().step(key, state, action, params)
        return obs, after, reward, False, {}


class RemembersEnds(HostLine):
    """Each episode that ended moves the start of the next one."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        result = super().step(key, state, action, params)
        finished.extend([None] * bool(result[3]))
        return result

    def observation(self, state: Any) -> Any:
        return np.array([state.x + len(finished) % 5], np.float32)


class DependsOnItsId(Line):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step(key, state, action, params)
        return obs + serials.setdefault(id(self), len(serials) % 5), *rest


class OneBuffer(HostLine):
    """Returns the same array at every step."""

    def reset(self, key: Any, params: Any) -> Any:
        _, state = super().reset(key, params)
        state.buffer = np.array([state.x], np.float32)
        return state.buffer, state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step(key, state, action, params)
        state.buffer[:] = obs
        return state.buffer, *rest


class SharedWorkspace(HostLine):
    """Stores its data by seed, so copies of an episode share it."""

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        state.seed = key
        workspaces[key] = []
        return obs, state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, _, *rest = super().step(key, state, action, params)
        workspaces[after.seed].append(1)
        return obs, after, float(len(workspaces[after.seed])), *rest


class FloatPicture(Line):
    def render(self, state: Any, params: Any) -> Any:
        return jnp.zeros((4, 6, 3))


class RenderMoves(HostLine):
    def render(self, state: Any, params: Any) -> Any:
        state.x += 1


class WrongWord(Line):
    def parse(self, text: str, params: Any) -> Any:
        return (super().parse(text, params) + 1) % 3


class AnythingGoes(Line):
    def parse(self, text: str, params: Any) -> Any:
        return int(text) if text.isdigit() else 0


class SilentDescription(Line):
    def describe(self, state: Any, obs: Any, params: Any) -> Any:
        return None


class ResetRaises(Line):
    def reset(self, key: Any, params: Any) -> Any:
        raise KeyError("no map")


BROKEN: list[tuple[str, str, Environment]] = [
    ("interface", "step", StoppedClock()),
    ("interface", "step", NoInfo()),
    ("interface", "env", ArrayField()),
    ("interface", "env", ListField()),
    ("interface", "env", DictInsideField()),
    ("interface", "action_space", GymActions()),
    ("interface", "observation_space", GymObservations()),
    ("interface", "action_space", NumberOfActions()),
    ("interface", "step", OldGymStep()),
    ("interface", "step", GymnasiumStep()),
    ("interface", "reset", GymnasiumReset()),
    ("interface", "step", GymnasiumSignature()),
    ("interface", "reset", BareState()),
    ("interface", "reset", ResetRaises()),
    ("spaces", "reset", SmallBox()),
    ("spaces", "step", LongObservation()),
    ("spaces", "observation_space", MovingSpace()),
    ("spaces", "observation_space", ConcreteSpace()),
    ("spaces", "reset", HalfPrecision()),
    ("spaces", "reset", HalfPrecisionInside()),
    ("flags", "step", WholeReward()),
    ("flags", "step", DoneNotSet()),
    ("flags", "step", ForgetsItsLimit()),
    ("flags", "step", ForgetsAnUnreachedLimit()),
    ("flags", "step", HostForgetsItsLimit()),
    ("finite-rewards", "step", NanReward()),
    ("finite-rewards", "step", RareNanReward()),
    ("purity", "step", ChangesItsState()),
    ("same-seed", "step", OutsideNoise()),
    ("same-seed", "reset", UnseededHost()),
    ("global-state", "step", Counter()),
    ("global-state", "step", OneEpisodeHost()),
    ("jit", "step", PythonBranch()),
    ("jit", "step", PythonNumber()),
    ("jit", "step", DetectsTracers()),
    ("scan", "step", ChangesDtype()),
    ("vmap", "step", Unbatchable()),
    ("params", "step", ConcreteParams()),
    ("params", "step", DefaultParamsUnderTrace()),
    ("termination", "step", NeverEnds()),
    ("termination", "step", EndlessHost()),
    ("episodes", "reset", RemembersEnds()),
    ("instances", "step", DependsOnItsId()),
    ("immutability", "reset", OneBuffer()),
    ("snapshot", "session", SharedWorkspace()),
    ("render", "render", FloatPicture()),
    ("render", "render", RenderMoves()),
    ("words", "parse", WrongWord()),
    ("words", "parse", AnythingGoes()),
    ("words", "describe", SilentDescription()),
]
