"""PlumeEnv: the search for a smell with injected parts, the library's or a user's own Python objects."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np

from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array, is_integer
from tropism.envs.plume.host import PlumeHost
from tropism.envs.plume.nav import PlumeNav, checked_point, checked_size
from tropism.envs.plume.parts import Parts
from tropism.errors import ValidationError
from tropism.gym.env import RENDER_MODES, SearchEnv, check_render_mode
from tropism.gym.spaces import from_gymnasium_space
from tropism.plume.fields import Field, Filaments, Gaussian, Meander, Puffs, Recording, Shared
from tropism.plume.motion import Cardinal, Motion
from tropism.plume.rewards import Reward, SparseGoal
from tropism.plume.sensors import Concentration, FullField, Position, Sensor, SourcePosition, named
from tropism.plume.start import Start
from tropism.plume.user_parts import Declared, OwnMotion, OwnReward, OwnSensor, Unseen, require
from tropism.plume.wind import Wind

SIZE = (128, 128)
NAMED = {"gaussian": Gaussian, "meander": Meander}  # the fields whose numbers suit a grid of unit cells
CARRIED = (Filaments, Meander, Puffs, Shared)  # by a wind of their own
TRAIL = 100  # past positions in a picture


@dataclass(frozen=True)
class ActionModel:
    """A motion with the space of its actions as Gymnasium's."""

    component: Any
    action_space: gymnasium.Space[Any]


@dataclass(frozen=True)
class SensorModel:
    """A sensor with the space of its observations as Gymnasium's."""

    component: Any
    observation_space: gymnasium.Space[Any]


class PlumeEnv(SearchEnv):
    """Find the source of a smell. Parts of the library compile into one step; one user's object among them, and
    the environment runs on the host, with everything else unchanged.

    `plume` is a Field, a Recording, "gaussian", "meander" or an object with `sample(x, y, t=None)`; None is a
    Gaussian. `plume_params` are numbers of a library's field, as in `{"sigma": 30}`. Without a `grid_size` it is
    128 × 128, or the frame of a recording; without a `source_location` the source is where the field has it, else
    in the middle.
    """

    def __init__(
        self,
        *,
        grid_size: Any = None,
        source_location: Any = None,
        goal_radius: Any = 5.0,
        max_steps: Any = 1000,
        plume: Any = None,
        sensor_model: Any = None,
        action_model: Any = None,
        reward_fn: Any = None,
        plume_params: Any = None,
        start_location: Any = None,
        wind_field: Any = None,
        render_mode: Any = None,
    ):
        check_render_mode(render_mode, RENDER_MODES)
        size = _size(grid_size, plume)
        source = _place("source_location", source_location, size, plume)
        place = _place("start_location", start_location, size, plume)
        base = PlumeNav(
            field=_field(plume, plume_params, source, wind_field, size),
            sensor=_sensor(sensor_model),
            motion=_motion(action_model, plume),
            reward=_reward(reward_fn),
            start=Start() if place is None else Start(fixed=1, point=place),
            grid_size=size,
            high=_corner(size, plume),
            goal_radius=goal_radius,
            max_steps=max_steps,
            trail=0 if render_mode is None else TRAIL,
        )
        parts = _own_parts(sensor_model, action_model, reward_fn, plume, wind_field)
        env = base if parts is None else PlumeHost(base, parts)
        params = _film_params(base, source, wind_field) if isinstance(plume, Recording) else None
        super().__init__(env, params, render_mode)
        self._keep_spaces(sensor_model, action_model)

    def _keep_spaces(self, sensor: Any, motion: Any) -> None:
        """A user's own spaces are the environment's, not copies of them."""
        if isinstance(getattr(sensor, "observation_space", None), gymnasium.Space):
            self.observation_space = sensor.observation_space
        if isinstance(getattr(motion, "action_space", None), gymnasium.Space):
            self.action_space = motion.action_space

    @property
    def _base(self) -> PlumeNav:
        env: Any = self.session.env
        return env.base if isinstance(env, PlumeHost) else env

    @property
    def _parts(self) -> Parts | None:
        env = self.session.env
        return env.parts if isinstance(env, PlumeHost) else None

    @property
    def action_model(self) -> Any:
        """The user's own object, or the library's motion with a Gymnasium space."""
        own = None if self._parts is None else self._parts.motion
        if own is None:
            return ActionModel(self._base.motion, self.action_space)
        return ActionModel(own, self.action_space) if isinstance(own.action_space, Space) else own

    @property
    def sensor_model(self) -> Any:
        """The user's own object, or the library's sensor with a Gymnasium space."""
        own = None if self._parts is None else self._parts.sensor
        if own is None:
            return SensorModel(self._base.sensor, self.observation_space)
        return SensorModel(own, self.observation_space) if isinstance(own.observation_space, Space) else own

    @property
    def reward_fn(self) -> Any:
        own = None if self._parts is None else self._parts.reward
        return self._base.reward if own is None else own

    @property
    def plume(self) -> Any:
        return self._parts.plume if self._parts is not None and self._parts.owns_plume else self._base.field


class PlumeSearchEnv(PlumeEnv):
    """The search with everything in sight: where the agent and the source are, and the whole field.

    Takes what `PlumeEnv` takes, except a `sensor_model`.
    """

    def __init__(self, **arguments: Any):
        if "sensor_model" in arguments:
            raise ValidationError("sensor_model", arguments["sensor_model"], "PlumeEnv: this preset brings its own")
        everything = named(agent_position=Position(), concentration_field=FullField(), source_location=SourcePosition())
        super().__init__(sensor_model=everything, **arguments)


def _own_parts(sensor: Any, motion: Any, reward: Any, plume: Any, wind: Any) -> Parts | None:
    """What a user brought; None where all is the library's."""
    theirs = {
        "sensor": None if isinstance(sensor, Sensor) else sensor,
        "motion": None if isinstance(motion, Motion) else motion,
        "reward": None if isinstance(reward, Reward) else reward,
        "plume": None if isinstance(plume, str | Field | Recording) else plume,
        "wind": None if isinstance(wind, Wind) else wind,
    }
    if all(part is None for part in theirs.values()):
        return None
    return Parts(**{**theirs, "wind": wind})


def _sensor(component: Any) -> Sensor:
    if component is None or isinstance(component, Sensor):
        return Concentration() if component is None else component
    return OwnSensor(
        declared=_declared("sensor_model.observation_space", require("sensor_model", component).observation_space)
    )


def _motion(component: Any, plume: Any) -> Motion:
    if isinstance(component, Motion):
        return component
    if component is None:
        size = plume.pixel_size if isinstance(plume, Recording) else 1.0
        return Cardinal(step_length=size, on_grid=size == 1.0)
    return OwnMotion(declared=_declared("action_model.action_space", require("action_model", component).action_space))


def _reward(component: Any) -> Reward:
    if component is None or isinstance(component, Reward):
        return SparseGoal() if component is None else component
    require("reward_fn", component)
    return OwnReward()


def _declared(name: str, space: Any) -> Declared:
    if not isinstance(space, Space | gymnasium.Space):
        raise ValidationError(name, space, "a Gymnasium space")
    return Declared(space if isinstance(space, Space) else from_gymnasium_space(space))


def _field(plume: Any, numbers: Any, source: Any, wind: Any, size: tuple[int, int]) -> Field | Recording:
    """The field, or what stands for a user's plume, with its source in place and its wind."""
    if isinstance(plume, str) and plume not in NAMED:
        raise ValidationError("plume", plume, f"{', '.join(NAMED)}, or a Field, or an object with sample(x, y)")
    if not (plume is None or isinstance(plume, str | Field)):
        if numbers:
            raise ValidationError("plume_params", numbers, "None: they are numbers of the library's own fields")
        if isinstance(plume, Recording):
            return plume
        require("plume", plume)
        return Unseen(source or (size[0] // 2, size[1] // 2))
    field = plume if isinstance(plume, Field) else _named(plume or "gaussian", size)
    field = field if source is None else field.moved(source)
    return _blown(_numbered(field, numbers), wind)


def _named(name: str, size: tuple[int, int]) -> Field:
    column = size[0] // 8 if name == "meander" else size[0] // 2  # a plume that drifts needs room downwind
    return NAMED[name](source=(float(column), float(size[1] // 2)))


def _numbered(field: Field, numbers: Any) -> Field:
    """The field with some of its numbers replaced."""
    if numbers is not None and not isinstance(numbers, Mapping):
        raise ValidationError("plume_params", numbers, "None or a dict of numbers")
    known = [own.name for own in fields(field) if as_array(getattr(field, own.name)) is not None]
    known = [name for name in known if np.ndim(getattr(field, name)) == 0]
    values: dict[str, Any] = {}
    for name, value in (numbers or {}).items():
        if name not in known:
            expected = f"a number of {type(field).__name__}: {', '.join(known)}"
            raise ValidationError("plume_params", name, expected)
        number = as_array(value)
        if number is None or number.shape != () or number.dtype.kind == "b":
            raise ValidationError(f"plume_params[{name!r}]", value, "a number")
        values[name] = int(number) if is_integer(value) else float(number)
    return replace(field, **values) if values else field


def _blown(field: Field, wind: Any) -> Field:
    if wind is None:
        return field
    if isinstance(wind, Wind) and any(own.name == "flow" for own in fields(field)):
        return replace(field, flow=wind)  # pyright: ignore[reportCallIssue]; not every field has one
    if isinstance(wind, Wind) or isinstance(field, CARRIED):
        raise ValidationError("wind_field", wind, f"None: a {type(field).__name__} brings its own wind")
    require("wind_field", wind)
    return field


def _film_params(base: PlumeNav, source: Any, wind: Any) -> Any:
    """A recording becomes a field among params, so that is where it is moved and given a wind."""
    params = base.default_params()
    field = params.field if source is None else params.field.moved(source)
    return replace(params, field=_blown(field, wind))


def _size(grid_size: Any, plume: Any) -> tuple[int, int]:
    if grid_size is None:
        return plume.frames.shape[2:0:-1] if isinstance(plume, Recording) else SIZE
    return checked_size(grid_size)


def _corner(size: tuple[int, int], plume: Any) -> tuple[float, float]:
    unit = plume.pixel_size if isinstance(plume, Recording) else 1.0
    return unit * (size[0] - 1), unit * (size[1] - 1)


def _place(name: str, value: Any, size: tuple[int, int], plume: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    point, high = checked_point(name, value), _corner(size, plume)
    if not (0 <= point[0] <= high[0] and 0 <= point[1] <= high[1]):
        raise ValidationError(name, value, f"a point between (0, 0) and {high}")
    return point
