"""PlumeNav with a user's Python objects as parts: the same search, stepped on the host."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tropism.core.adapters.language import Language
from tropism.core.compiled.program import host_device
from tropism.core.environment import Environment, Info
from tropism.core.episode import Timestep, host_key, seed_words
from tropism.core.host import Host
from tropism.core.native.engine import make_compiled_engine
from tropism.core.session.compiled import XlaEngine
from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.envs.plume.host_parts import (
    SceneParts,
    SmallBox,
    compute_reward,
    move,
    sense,
    start_pose,
    to_pose,
)
from tropism.envs.plume.host_state import PlumeHostState
from tropism.envs.plume.nav import PlumeNav, PlumeNavParams, PlumeNavState
from tropism.envs.plume.parts import PlumeParts, PlumeView
from tropism.envs.plume.steps import PRIVATE_INFO, HostSteps, search_info, take_step
from tropism.errors import StateError, ValidationError
from tropism.plume.rewards import SparseGoal
from tropism.plume.scene import AgentPose
from tropism.plume.sensors import Concentration
from tropism.plume.user_parts import (
    AgentState,
    Coordinates,
    GridSize,
    HostField,
    HostFieldState,
    NeedsHost,
    PlaceholderField,
    Surroundings,
    plume_raster,
    require_finite,
    return_label,
    sample_plume,
)

RNG = -2  # in place of a step number: selects the key of the components' generator


class HostSearch:
    """The steps of a `PlumeHost`. A plain class, because Equinox wraps every bound method in a module."""

    def __init__(self, base: PlumeNav, parts: PlumeParts):
        self.base = base
        self.parts = parts
        self.size = GridSize(*base.grid_size)
        self.shape, self.low, self.high, self.trail = base.shape, base.low, base.high, base.trail
        self.on_grid = base.motion.on_grid
        self.engine: XlaEngine | None = None  # moves the agent and the plume if both are the library's
        self._small_obs = SmallBox.of(base.sensor.space(base.shape))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "engine": None}  # a copy replays its episode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostSearch) and (self.base, self.parts) == (other.base, other.parts)

    def __hash__(self) -> int:
        return hash((self.base, self.parts))

    def reset(self, seed: int, params: Any) -> tuple[Any, PlumeHostState]:
        words, rng = seed_words(seed), np.random.default_rng(host_key(seed, RNG))
        source = Coordinates(*(float(side) for side in params.field.source))
        episode, steps = self.parts.begin_episode(seed, rng, params), HostSteps(self, params)
        agent = AgentState(Coordinates(0, 0))
        state = PlumeHostState(self, episode, steps, words, rng, source, self._coordinates(*source), agent, None)
        with jax.default_device(host_device()):
            if self.parts.uses_engine:
                self._start_engine(state, seed, params)
            else:
                pose = start_pose(words, params.start, params.motion, params.arena, source, params.goal_radius)
                state.pose, state.agent = pose, self._agent_state(pose, agent)
                state.memory = params.sensor.start(self.shape)
        state.trail = (state.agent.position,) * self.trail
        self.update_surroundings(state, steps.goal_radius)
        return self.observe(state, params), state

    def _start_engine(self, state: PlumeHostState, seed: int, params: Any) -> None:
        """Reset an engine of the same search with library parts in place of the user's sensor and reward."""
        user = {"sensor": (self.parts.sensor, Concentration()), "reward": (self.parts.reward, SparseGoal())}
        parts = {name: part for name, (own, part) in user.items() if own is not None}
        library_params = replace(params, **parts)
        if self.engine is None:
            self.engine = make_compiled_engine(self.base.with_parts(**parts), library_params, "auto")
        self._follow_engine(state, self.engine.reset(seed, library_params, {}))

    def _follow_engine(self, state: PlumeHostState, timestep: Timestep) -> None:
        info, agent = timestep.info, state.agent.copy()
        agent.position, agent.orientation = Coordinates(*info["agent_xy"]), info["heading"]
        state.agent, state.pose, state.timestep = agent, None, timestep
        state.absorbed = timestep.terminated and not info["goal_reached"]
        self.parts.plume.follow(self.engine, agent.position, info["concentration_at_agent"])

    def step(self, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        self._check_action(action)
        result = take_step(state.steps, state, action)
        state.episode.actions.append(action)
        return result

    def info(self, state: PlumeHostState) -> Info:
        agent, goal = state.agent, tuple(state.goal)
        position, heading = tuple(agent.position), agent.orientation % 360.0
        return search_info(agent.goal_reached, position, heading, goal, state.distance, state.concentration)

    def resume(self, state: PlumeHostState) -> PlumeHostState:
        """The state with parts at its step; if they have advanced, copies of them that replay its episode."""
        episode, steps = state.episode, state.agent.step_count
        if episode is self.parts.episode and steps == self.parts.now == len(episode.actions):
            return state
        if episode.initial_parts is None:
            advice = "give each session its own environment"
            message = f"cannot step: the components of this environment run another episode; {advice}"
            raise StateError("episode", steps, advice, message)
        search = HostSearch(self.base, self.parts.at_episode_start(episode))
        _, replayed = search.reset(episode.seed, episode.params)
        for action in episode.actions[:steps]:
            replayed = search.step(replayed, action, episode.params)[1]
        return replayed

    def _check_action(self, action: Any) -> None:
        motion = self.parts.motion
        if hasattr(motion, "validate_action") and not motion.validate_action(action):
            raise ValidationError("action", action, f"one that {type(motion).__name__}.validate_action accepts")

    def move_agent(self, state: PlumeHostState, action: Any, params: Any) -> None:
        """Move the agent of `state`; its counters are still those before the step."""
        motion, before = self.parts.motion, state.agent
        step = before.step_count + 1
        if self.engine is not None:
            self._follow_engine(state, self.engine.step(action))
            return
        if motion is None:
            pose = self._run(move, params.motion, (state.words, step, action), (state,), params)
            state.pose, state.absorbed = pose, bool(pose.absorbed)
            state.agent = self._agent_state(pose, before)
            return
        result = motion.process_action(action, before.copy(), self.size)
        state.agent = agent = self._validate_agent(result, before, step)
        state.moved = (agent.position[0] - before.position[0], agent.position[1] - before.position[1])
        state.pose = None

    def _validate_agent(self, result: Any, before: AgentState, step: int) -> AgentState:
        position: Any = getattr(result, "position", None)
        point: Any = (position.x, position.y) if hasattr(position, "x") and hasattr(position, "y") else position
        if not self._is_inside(point):
            point = as_array(point)
            if point is None or point.shape != (2,) or not np.all((point >= self.low) & (point <= self.high)):
                expected = f"an agent with a position between {self.low} and {self.high}"
                name = return_label(self.parts.motion, "process_action", step)
                raise ValidationError(name, result if position is None else position, expected)
            point = point.tolist()
        agent = before.copy()
        agent.position = Coordinates(*point)
        agent.orientation = orientation = getattr(result, "orientation", before.orientation)
        if type(orientation) is not float or not math.isfinite(orientation):
            label = return_label(self.parts.motion, "process_action", step)
            agent.orientation = require_finite(f"the orientation in {label}", orientation)
        return agent

    def _is_inside(self, point: Any) -> bool:
        """Whether a point is a pair of plain numbers inside the arena."""
        if type(point) is not tuple or len(point) != 2:
            return False
        x, y = point
        plain = type(x) in (int, float) and type(y) in (int, float)
        return plain and self.low[0] <= x <= self.high[0] and self.low[1] <= y <= self.high[1]

    def update_surroundings(self, state: PlumeHostState, goal_radius: float) -> None:
        """Update the field, the concentration at the agent, the distance and whether the goal is reached."""
        plume, agent = self.parts.plume, state.agent
        if state.timestep is not None:
            info = state.timestep.info
            state.concentration, state.distance = info["concentration_at_agent"], info["distance_to_goal"]
            agent.goal_reached = info["goal_reached"]
            return
        x, y = agent.position
        state.concentration = sample_plume(plume, x, y, self.parts.now)
        state.distance = math.dist(agent.position, state.source)
        agent.goal_reached = state.distance <= goal_radius
        state.field = plume.state if isinstance(plume, PlumeView) else None

    def reward(self, state: PlumeHostState, action: Any, after: PlumeHostState, params: Any) -> float:
        reward = self.parts.reward
        if reward is None and after.timestep is not None:
            return after.timestep.reward
        if reward is None:
            known = (action, after.agent.goal_reached)
            return float(self._run(compute_reward, params.reward, known, (state, after), params))
        value = reward.compute_reward(state.agent.copy(), action, after.agent.copy(), self.parts.plume)
        if type(value) is float and math.isfinite(value):
            return value
        return require_finite(return_label(reward, "compute_reward", self.parts.now), value)

    def observe(self, state: PlumeHostState, params: Any) -> Any:
        sensor, step = self.parts.sensor, self.parts.now
        if sensor is None and state.timestep is not None:
            return state.timestep.obs
        if sensor is None:
            known = (state.words, step, state.memory)
            obs, state.memory = self._run(sense, params.sensor, known, (state,), params)
            return jax.tree.map(np.array, obs)
        obs = sensor.get_observation(self._surroundings(state))
        if self._small_obs is not None and self._small_obs.contains(obs):
            return obs.copy()
        return params.sensor.space(self.shape).coerce(obs, return_label(sensor, "get_observation", step))

    def _surroundings(self, state: PlumeHostState) -> Surroundings:
        parts = self.parts
        values = {
            "agent_state": state.agent.copy(),
            "concentration_field": parts.plume,
            "wind_field": parts.wind,
            "goal_location": state.goal,
            "grid_size": self.size,
            "step_count": state.agent.step_count,
            "max_steps": state.steps.max_steps,
            "rng": state.rng,
        }
        return Surroundings(values, lambda: plume_raster(parts.plume, self.shape, parts.now))

    def _run(self, function: Any, part: Any, known: SceneParts, states: tuple[PlumeHostState, ...], params: Any) -> Any:
        """Run a part compiled, unless it uses a plume or a wind that is a Python object."""
        host_only, name = self.parts.host_only, f"{function.__name__} of {type(part).__name__}"
        with jax.default_device(host_device()):
            if name not in host_only:
                try:
                    return function(part, *known, *(self._compiled_scene_parts(state, params) for state in states))
                except NeedsHost:
                    host_only.add(name)
            return function.__wrapped__(part, *known, *(self.host_scene_parts(state, params) for state in states))

    def _compiled_scene_parts(self, state: PlumeHostState, params: Any) -> SceneParts:
        field, parts = params.field, self.parts
        if parts.owns_wind and not parts.owns_plume:
            field = PlaceholderField(field.source, field)
        return self.pose(state), params.arena, field, state.concentration if parts.owns_plume else state.field

    def host_scene_parts(self, state: PlumeHostState, params: Any) -> SceneParts:
        field, field_state = params.field, state.field if self.engine is None else self.engine.state().field
        if self.parts.owns_plume or self.parts.owns_wind:
            field = HostField(field.source, None if self.parts.owns_plume else field, self.parts, self.shape)
            field_state = HostFieldState(state.agent.step_count, state.agent.position, state.concentration, state.field)
        return self.pose(state), params.arena, field, field_state

    def pose(self, state: PlumeHostState) -> AgentPose:
        """The agent, for library parts."""
        if (pose := state.pose) is None and self.engine is not None:
            pose = jax.tree.map(jnp.asarray, self.engine.state().agent)
        elif pose is None:
            pose = to_pose(state.agent.position, state.agent.orientation, state.moved)
        state.pose = pose
        return pose

    def _agent_state(self, pose: AgentPose, before: AgentState) -> AgentState:
        """Convert the library's agent to the one passed to user parts."""
        x, y = np.asarray(pose.xy).tolist()
        agent = before.copy()
        agent.position = self._coordinates(x, y)
        agent.orientation = float(np.degrees(np.asarray(pose.heading))) % 360.0
        return agent

    def _coordinates(self, x: float, y: float) -> Coordinates:
        return Coordinates(round(x), round(y)) if self.on_grid else Coordinates(x, y)


class PlumeHost(Environment):
    """`base` with the components of `parts` in place of some of its own.

    `base` has `UserSensor`, `UserMotion`, `UserReward` and `PlaceholderField` in place of user parts. The user's
    objects run the episode that started last; earlier ones, in other sessions, continue with copies of them.
    """

    host = Host(reseedable=False)
    private_info = PRIVATE_INFO

    search: HostSearch

    def __init__(self, base: PlumeNav, parts: PlumeParts):
        self.search = HostSearch(base, parts)

    @property
    def base(self) -> PlumeNav:
        return self.search.base

    @property
    def parts(self) -> PlumeParts:
        return self.search.parts

    def default_params(self) -> PlumeNavParams:
        return self.base.default_params()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return self.base.reset_options

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        return self.base.configure(params, options)

    def reset(self, key: int, params: Any) -> tuple[Any, PlumeHostState]:
        return self.search.reset(key, params)

    def step(self, key: int, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        state = state.search.resume(state)
        return state.search.step(state, action, params)

    def info(self, state: PlumeHostState, params: Any) -> Info:
        return self.search.info(state)

    def observation_space(self, params: Any) -> Space:
        return self.base.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.base.action_space(params)

    def render(self, state: PlumeHostState, params: Any) -> NDArray[Any]:
        with jax.default_device(host_device()):
            state = state.search.resume(state)
            _, _, field, field_state = state.search.host_scene_parts(state, params)
            return np.array(self.base.render(self._pure(state, field_state), replace(params, field=field)))

    def describe(self, state: PlumeHostState, obs: Any, params: Any) -> str:
        return self.base.describe(self._pure(state, state.field), obs, params)

    def agent_position_in_image(self, state: PlumeHostState, params: Any) -> tuple[float, float] | None:
        return self.base.agent_position_in_image(self._pure(state, state.field), params)

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Language(self.base.motion.words)

    def _pure(self, state: PlumeHostState, field: Any) -> PlumeNavState:
        trail = jnp.asarray(np.reshape(state.trail, (-1, 2)), float)
        return PlumeNavState(jnp.int32(state.agent.step_count), self.search.pose(state), field, state.memory, trail)
