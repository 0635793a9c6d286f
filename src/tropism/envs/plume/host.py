"""PlumeNav with parts that are a user's own Python objects: the same search, stepped on the host."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.compiled.program import host_device
from tropism.core.environment import Environment, Info, outcome
from tropism.core.episode import host_key, seed_words, step_key
from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.envs.plume.nav import MOTION, SENSOR, PlumeNav, PlumeNavParams, PlumeNavState
from tropism.envs.plume.parts import Episode, Parts, PlumeView
from tropism.errors import StateError, ValidationError
from tropism.plume.scene import Agent, Scene, pair
from tropism.plume.user_parts import (
    AgentState,
    Body,
    GridSize,
    HostField,
    Looked,
    Moment,
    Position,
    Surroundings,
    Unseen,
    called,
    finite,
    raster_of,
    sampled,
)

RNG = -2  # a number no step has: its key is for the components' generator
Sight = tuple[Any, ...]  # what a Scene is made of, which a compiled part makes itself


@dataclass(frozen=True)
class PlumeHostState:
    search: "Search"  # whose parts are in this episode
    episode: Episode
    words: NDArray[Any]  # the seed's
    rng: np.random.Generator
    source: Position
    agent: AgentState
    body: Agent  # the same agent, as library parts see it
    field: Any = None  # the state of a library field
    memory: Any = ()  # a library sensor's
    here: float = 0.0  # concentration at the agent
    distance: float = 0.0  # to the source
    trail: tuple[Position, ...] = ()


class Search:
    """The steps of a `PlumeHost`. A plain class, because Equinox makes a module of every method it binds."""

    def __init__(self, base: PlumeNav, parts: Parts):
        self.base = base
        self.parts = parts
        self.size = GridSize(*base.grid_size)
        self.shape, self.low, self.high, self.trail = base.shape, base.low, base.high, base.trail
        self.on_grid = base.motion.on_grid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Search) and (self.base, self.parts) == (other.base, other.parts)

    def __hash__(self) -> int:
        return hash((self.base, self.parts))

    def reset(self, seed: int, params: Any) -> tuple[Any, PlumeHostState]:
        words, rng = seed_words(seed), np.random.default_rng(host_key(seed, RNG))
        source = Position(*(float(side) for side in params.field.source))
        body = _place(words, params.start, params.motion, params.arena, source, params.goal_radius)
        agent = self._seen(body, AgentState(Position(0, 0)))
        episode = self.parts.begin(seed, rng, params)
        state = PlumeHostState(self, episode, words, rng, source, agent, body)
        memory = params.sensor.start(self.shape)
        state = self._arrived(replace(state, memory=memory, trail=(agent.position,) * self.trail), params)
        return self._observed(state, params)

    def step(self, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        self._check_action(action)
        agent, body = self._moved(state, action, params)
        self.parts.advance(agent.step_count + 1)
        trail = (*state.trail[1:], agent.position) if self.trail else ()
        after = self._arrived(replace(state, agent=agent, body=body, trail=trail), params)
        reward = self._reward(state, action, after, params)
        total = agent.total_reward + reward
        counted = replace(after.agent, step_count=agent.step_count + 1, total_reward=total)
        obs, after = self._observed(replace(after, agent=counted), params)
        state.episode.actions.append(action)
        terminated = counted.goal_reached or bool(body.lost)
        return obs, after, reward, *outcome(terminated, counted.step_count >= int(params.max_steps))

    def alive(self, state: PlumeHostState) -> PlumeHostState:
        """The state, with parts that are where it is: where they have gone on, copies that live its episode again."""
        episode, steps = state.episode, state.agent.step_count
        if episode is self.parts.episode and steps == self.parts.now == len(episode.actions):
            return state
        if episode.before is None:
            advice = "give each session its own environment"
            said = f"cannot step: the components of this environment are in another episode; {advice}"
            raise StateError("episode", steps, advice, said)
        twin = Search(self.base, self.parts.as_before(episode))
        _, again = twin.reset(episode.seed, episode.params)
        for action in episode.actions[:steps]:
            again = twin.step(again, action, episode.params)[1]
        return again

    def _check_action(self, action: Any) -> None:
        motion = self.parts.motion
        if hasattr(motion, "validate_action") and not motion.validate_action(action):
            raise ValidationError("action", action, f"one that {type(motion).__name__}.validate_action accepts")

    def _moved(self, state: PlumeHostState, action: Any, params: Any) -> tuple[AgentState, Agent]:
        """The next state of the agent, by the action model; its counters are still those before the step."""
        motion, number = self.parts.motion, state.agent.step_count + 1
        if motion is None:
            body = self._run(_move, params.motion, (state.words, number, action), (state,), params)
            return self._seen(body, state.agent), body
        result = motion.process_action(action, replace(state.agent), self.size)
        agent = self._checked(result, state.agent, called(motion, "process_action", number))
        return agent, _embody(state.body, agent.position, agent.orientation)

    def _checked(self, result: Any, before: AgentState, name: str) -> AgentState:
        found: Any = getattr(result, "position", None)
        point = as_array((found.x, found.y) if hasattr(found, "x") and hasattr(found, "y") else found)
        if point is None or point.shape != (2,) or not np.all((point >= self.low) & (point <= self.high)):
            expected = f"an agent with a position between {self.low} and {self.high}"
            raise ValidationError(name, result if found is None else found, expected)
        orientation = finite(f"the orientation in {name}", getattr(result, "orientation", before.orientation))
        return replace(before, position=Position(*point.tolist()), orientation=orientation)

    def _arrived(self, state: PlumeHostState, params: Any) -> PlumeHostState:
        """The state with what is around the agent now: the field, the smell, the goal."""
        plume, agent = self.parts.plume, state.agent
        x, y = agent.position
        here = sampled(plume, x, y, self.parts.now)
        distance = math.dist(agent.position, state.source)
        agent = replace(agent, goal_reached=distance <= float(params.goal_radius))
        field = plume.state if isinstance(plume, PlumeView) else None
        return replace(state, agent=agent, field=field, here=here, distance=distance)

    def _reward(self, state: PlumeHostState, action: Any, after: PlumeHostState, params: Any) -> float:
        reward = self.parts.reward
        if reward is None:
            known = (action, after.agent.goal_reached)
            return float(self._run(_value, params.reward, known, (state, after), params))
        value = reward.compute_reward(replace(state.agent), action, replace(after.agent), self.parts.plume)
        return finite(called(reward, "compute_reward", self.parts.now), value)

    def _observed(self, state: PlumeHostState, params: Any) -> tuple[Any, PlumeHostState]:
        sensor, number = self.parts.sensor, self.parts.now
        if sensor is None:
            known = (state.words, number, state.memory)
            obs, memory = self._run(_sense, params.sensor, known, (state,), params)
            return jax.tree.map(np.array, obs), replace(state, memory=memory)
        obs = sensor.get_observation(self._surroundings(state, params))
        return params.sensor.space(self.shape).coerce(obs, called(sensor, "get_observation", number)), state

    def _surroundings(self, state: PlumeHostState, params: Any) -> Surroundings:
        parts = self.parts
        told = {
            "agent_state": replace(state.agent),
            "concentration_field": parts.plume,
            "wind_field": parts.wind,
            "goal_location": self.goal(state),
            "grid_size": self.size,
            "step_count": state.agent.step_count,
            "max_steps": int(params.max_steps),
            "rng": state.rng,
        }
        return Surroundings(told, lambda: raster_of(parts.plume, self.shape, parts.now))

    def _run(self, function: Any, part: Any, known: Sight, states: tuple[PlumeHostState, ...], params: Any) -> Any:
        """Compiled, unless the part looks at a plume or a wind that is a Python object."""
        looking, name = self.parts.looking, f"{function.__name__} of {type(part).__name__}"
        if name not in looking:
            try:
                return function(part, *known, *(self._blind_sight(state, params) for state in states))
            except Looked:
                looking.add(name)
        return function.__wrapped__(part, *known, *(self.sight(state, params) for state in states))

    def _blind_sight(self, state: PlumeHostState, params: Any) -> Sight:
        field, parts = params.field, self.parts
        if parts.owns_wind and not parts.owns_plume:
            field = Unseen(field.source, field)
        return state.body, params.arena, field, state.here if parts.owns_plume else state.field

    def sight(self, state: PlumeHostState, params: Any) -> Sight:
        field, moment = params.field, state.field
        if self.parts.owns_plume or self.parts.owns_wind:
            field = HostField(field.source, None if self.parts.owns_plume else field, self.parts, self.shape)
            moment = Moment(state.agent.step_count, state.agent.position, state.here, state.field)
        return state.body, params.arena, field, moment

    def _seen(self, body: Agent, before: AgentState) -> AgentState:
        """The library's agent as a user's part sees it."""
        x, y = np.asarray(body.xy).tolist()
        orientation = float(np.degrees(np.asarray(body.heading))) % 360.0
        return replace(before, position=self._place(x, y), orientation=orientation)

    def goal(self, state: PlumeHostState) -> Position:
        return self._place(*state.source)

    def _place(self, x: float, y: float) -> Position:
        return Position(round(x), round(y)) if self.on_grid else Position(x, y)


class PlumeHost(Environment):
    """`base` with the components of `parts` in place of some of its own.

    `base` has `OwnSensor`, `OwnMotion`, `OwnReward` and `Unseen` where a part is a user's. The user's own objects
    live the episode that began last; one that began before it, in another session, goes on with copies of them.
    """

    traced: ClassVar[bool] = False
    reseedable: ClassVar[bool] = False

    search: Search

    def __init__(self, base: PlumeNav, parts: Parts):
        self.search = Search(base, parts)

    @property
    def base(self) -> PlumeNav:
        return self.search.base

    @property
    def parts(self) -> Parts:
        return self.search.parts

    def default_params(self) -> PlumeNavParams:
        return self.base.default_params()

    @property
    def reset_options(self) -> tuple[str, ...]:
        return self.base.reset_options

    def configure(self, params: Any, options: Mapping[str, Any]) -> Any:
        return self.base.configure(params, options)

    def reset(self, key: int, params: Any) -> tuple[Any, PlumeHostState]:
        with jax.default_device(host_device()):
            return self.search.reset(key, params)

    def step(self, key: int, state: PlumeHostState, action: Any, params: Any) -> tuple[Any, ...]:
        with jax.default_device(host_device()):
            state = state.search.alive(state)
            return state.search.step(state, action, params)

    def info(self, state: PlumeHostState, params: Any) -> Info:
        here, goal = tuple(state.agent.position), tuple(self.search.goal(state))
        return {
            "goal_reached": state.agent.goal_reached,
            "agent_xy": here,
            "agent_position": here,
            "source_location": goal,
            "goal_location": goal,
            "distance_to_goal": state.distance,
            "concentration_at_agent": state.here,
        }

    def observation_space(self, params: Any) -> Space:
        return self.base.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.base.action_space(params)

    def render(self, state: PlumeHostState, params: Any) -> NDArray[Any]:
        with jax.default_device(host_device()):
            state = state.search.alive(state)
            _, _, field, moment = state.search.sight(state, params)
            return np.array(self.base.render(self._pure(state, moment), replace(params, field=field)))

    def describe(self, state: PlumeHostState, obs: Any, params: Any) -> str:
        return self.base.describe(self._pure(state, state.field), obs, params)

    def agent_position_in_image(self, state: PlumeHostState, params: Any) -> tuple[float, float] | None:
        return self.base.agent_position_in_image(self._pure(state, state.field), params)

    def action_words(self) -> tuple[str, ...]:
        return self.base.action_words()

    def _pure(self, state: PlumeHostState, field: Any) -> PlumeNavState:
        trail = jnp.asarray(np.reshape(state.trail, (-1, 2)), float)
        return PlumeNavState(jnp.int32(state.agent.step_count), state.body, field, state.memory, trail)


@jax.jit
def _place(words: Any, start: Any, motion: Any, arena: Any, source: Any, goal_radius: Any) -> Agent:
    agent = start.place(step_key(words, 0), arena, pair(source), goal_radius, motion.on_grid)
    return replace(agent, heading=motion.facing(agent.heading))


@jax.jit
def _embody(before: Agent, position: Any, degrees: Any) -> Agent:
    xy = pair(position)
    return Agent.at(xy, jnp.deg2rad(jnp.asarray(degrees, xy.dtype)), xy - before.xy, before.lost)


def _scene(sight: Sight) -> Scene:
    body, arena, field, state = sight
    if isinstance(field, Unseen) and field.inner is None:
        body = Body.of(body)
        state = (body.xy, state)
    return Scene(body, arena, field, state)


def _key(words: Any, number: Any, part: int) -> Any:
    return random.fold_in(step_key(jnp.asarray(words), number), part)


@jax.jit
def _move(motion: Any, words: Any, number: Any, action: Any, sight: Sight) -> Agent:
    return motion.move(_key(words, number, MOTION), action, _scene(sight))


@jax.jit
def _value(reward: Any, action: Any, reached: Any, before: Sight, after: Sight) -> Any:
    return reward(_scene(before), action, _scene(after), jnp.asarray(reached)).astype(jnp.float32)


@jax.jit
def _sense(sensor: Any, words: Any, number: Any, memory: Any, sight: Sight) -> Any:
    return sensor.sense(_key(words, number, SENSOR), memory, _scene(sight))
