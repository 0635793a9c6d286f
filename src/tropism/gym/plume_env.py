"""PlumeEnv: a plume search with injected parts: library parts or a user's Python objects."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np

from tropism.core.native.choice import EngineName
from tropism.core.params import override
from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array, is_integer
from tropism.envs.plume.arguments import validate_point, validate_size
from tropism.envs.plume.host import PlumeHost
from tropism.envs.plume.nav import PlumeNav, source_point
from tropism.envs.plume.parts import PlumeParts
from tropism.errors import ValidationError
from tropism.gym.env import RENDER_MODES, SearchEnv, check_render_mode
from tropism.gym.spaces import from_gymnasium_space
from tropism.plume import checks
from tropism.plume.fields import FOR_GRIDS, Field, PlumeRecording
from tropism.plume.motion import Cardinal, Motion
from tropism.plume.rewards import Reward, SparseGoal
from tropism.plume.sensors import Concentration, FullField, Position, Sensor, SourcePosition, dict_sensor
from tropism.plume.start import Start
from tropism.plume.user_parts import (
    Coordinates,
    DeclaredSpace,
    GridSize,
    PlaceholderField,
    UserMotion,
    UserReward,
    UserSensor,
    require,
)
from tropism.plume.wind import Wind

log = logging.getLogger(__name__)

SIZE = (128, 128)
TRAIL = 100  # past positions in a picture


@dataclass(frozen=True)
class ActionModel:
    """A motion with its action space as a Gymnasium space."""

    component: Any
    action_space: gymnasium.Space[Any]


@dataclass(frozen=True)
class SensorModel:
    """A sensor with its observation space as a Gymnasium space."""

    component: Any
    observation_space: gymnasium.Space[Any]


class PlumeEnv(SearchEnv):
    """Find the source of an odour. Library parts are compiled into one step; with a user's Python object among
    them the environment runs on the host and is otherwise the same.

    `plume` is a Field, a PlumeRecording, "gaussian", "meander" or an object with `sample(x, y, t=None)`; None is a
    Gaussian. `plume_params` are numbers of a library field, as in `{"sigma": 30}`. `grid_size` defaults to
    128 × 128, or to the frame size of a recording; `source_location` defaults to the field's source, else to the
    centre.
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
        start_heading: Any = None,
        wind_field: Any = None,
        render_mode: Any = None,
        params: Any = None,
        engine: EngineName = "auto",
    ):
        check_render_mode(render_mode, RENDER_MODES)
        size = _size(grid_size, plume)
        source = _validate_location("source_location", source_location, size, plume)
        place = _validate_location("start_location", start_location, size, plume)
        base = PlumeNav(
            field=_field(plume, plume_params, source, wind_field, size),
            sensor=_sensor(sensor_model),
            motion=_motion(action_model, plume),
            reward=_reward(reward_fn),
            start=_start(place, start_heading, action_model),
            grid_size=size,
            high=_corner(size, plume),
            goal_radius=goal_radius,
            max_steps=max_steps,
            trail=0 if render_mode is None else TRAIL,
        )
        parts = _user_parts(sensor_model, action_model, reward_fn, plume, wind_field)
        env = base if parts is None else PlumeHost(base, parts)
        is_recording = isinstance(plume, PlumeRecording)
        defaults = _recording_params(base, source, wind_field) if is_recording else base.default_params()
        super().__init__(env, override(defaults, {} if params is None else params), render_mode, engine=engine)
        self._keep_spaces(sensor_model, action_model)
        self.grid_size, self.source_location = GridSize(*size), Coordinates(*source_point(base.field))
        self.start_location = None if place is None else Coordinates(*place)
        self.start_heading, self.plume_params, self.wind_field = start_heading, plume_params, wind_field
        self.goal_radius, self.max_steps = base.goal_radius, base.max_steps

    def close(self) -> None:
        """Close the session and the user's parts that have a `close`; never raises."""
        super().close()
        for part in () if self._parts is None else self._parts.user_objects():
            if hasattr(part, "close"):
                _close(part)

    def _keep_spaces(self, sensor: Any, motion: Any) -> None:
        """Use the user's space objects, not copies."""
        if isinstance(getattr(sensor, "observation_space", None), gymnasium.Space):
            self.observation_space = sensor.observation_space
        if isinstance(getattr(motion, "action_space", None), gymnasium.Space):
            self.action_space = motion.action_space

    @property
    def _base(self) -> PlumeNav:
        env: Any = self.session.env
        return env.base if isinstance(env, PlumeHost) else env

    @property
    def _parts(self) -> PlumeParts | None:
        env = self.session.env
        return env.parts if isinstance(env, PlumeHost) else None

    @property
    def action_model(self) -> Any:
        """The user's object, or the library's motion with a Gymnasium space."""
        user_part = None if self._parts is None else self._parts.motion
        if user_part is None:
            return ActionModel(self._base.motion, self.action_space)
        return ActionModel(user_part, self.action_space) if isinstance(user_part.action_space, Space) else user_part

    @property
    def sensor_model(self) -> Any:
        """The user's object, or the library's sensor with a Gymnasium space."""
        user_part = None if self._parts is None else self._parts.sensor
        if user_part is None:
            return SensorModel(self._base.sensor, self.observation_space)
        return (
            SensorModel(user_part, self.observation_space)
            if isinstance(user_part.observation_space, Space)
            else user_part
        )

    @property
    def reward_fn(self) -> Any:
        user_part = None if self._parts is None else self._parts.reward
        return self._base.reward if user_part is None else user_part

    @property
    def plume(self) -> Any:
        return self._parts.plume if self._parts is not None and self._parts.owns_plume else self._base.field


def _close(part: Any) -> None:
    try:
        part.close()
    except Exception:  # a user's code may raise anything, and close() never fails
        log.exception("%s raised when it was closed", type(part).__name__)


def _start(place: Any, heading: Any, motion: Any) -> Start:
    """A user's action model starts with the heading 0 unless another one is given; library motions with any."""
    if heading is not None:
        checks.require_finite(start_heading=heading)
    elif motion is not None and not isinstance(motion, Motion):
        heading = 0.0
    return Start(heading=heading) if place is None else Start(fixed=1, point=place, heading=heading)


class PlumeSearchEnv(PlumeEnv):
    """The fully observed search: positions of agent and source, and the whole field.

    Takes the arguments of `PlumeEnv` except `sensor_model`.
    """

    def __init__(self, **arguments: Any):
        if "sensor_model" in arguments:
            raise ValidationError(
                "sensor_model", arguments["sensor_model"], "PlumeEnv: this environment has a fixed sensor"
            )
        sensor = dict_sensor(
            agent_position=Position(), concentration_field=FullField(), source_location=SourcePosition()
        )
        super().__init__(sensor_model=sensor, **arguments)


def _user_parts(sensor: Any, motion: Any, reward: Any, plume: Any, wind: Any) -> PlumeParts | None:
    """The user's parts; None if all parts are the library's."""
    user_parts = {
        "sensor": None if isinstance(sensor, Sensor) else sensor,
        "motion": None if isinstance(motion, Motion) else motion,
        "reward": None if isinstance(reward, Reward) else reward,
        "plume": None if isinstance(plume, str | Field | PlumeRecording) else plume,
        "wind": None if isinstance(wind, Wind) else wind,
    }
    if all(part is None for part in user_parts.values()):
        return None
    return PlumeParts(**{**user_parts, "wind": wind})


def _sensor(component: Any) -> Sensor:
    if component is None or isinstance(component, Sensor):
        return Concentration() if component is None else component
    return UserSensor(
        declared=_declare_space("sensor_model.observation_space", require("sensor_model", component).observation_space)
    )


def _motion(component: Any, plume: Any) -> Motion:
    if isinstance(component, Motion):
        return component
    if component is None:
        size = plume.pixel_size if isinstance(plume, PlumeRecording) else 1.0
        return Cardinal(step_length=size, on_grid=size == 1.0)
    return UserMotion(
        declared=_declare_space("action_model.action_space", require("action_model", component).action_space)
    )


def _reward(component: Any) -> Reward:
    if component is None or isinstance(component, Reward):
        return SparseGoal() if component is None else component
    require("reward_fn", component)
    return UserReward()


def _declare_space(name: str, space: Any) -> DeclaredSpace:
    if not isinstance(space, Space | gymnasium.Space):
        raise ValidationError(name, space, "a Gymnasium space")
    return DeclaredSpace(space if isinstance(space, Space) else from_gymnasium_space(space))


def _field(plume: Any, numbers: Any, source: Any, wind: Any, size: tuple[int, int]) -> Field | PlumeRecording:
    """The field, or the placeholder for a user's plume, with its source and wind set."""
    if isinstance(plume, str) and plume not in FOR_GRIDS:
        raise ValidationError("plume", plume, f"{', '.join(FOR_GRIDS)}, or a Field, or an object with sample(x, y)")
    if not (plume is None or isinstance(plume, str | Field)):
        if numbers:
            raise ValidationError("plume_params", numbers, "None: they are numbers of library fields")
        if isinstance(plume, PlumeRecording):
            return plume
        require("plume", plume)
        return PlaceholderField(source or (size[0] // 2, size[1] // 2))
    field = plume if isinstance(plume, Field) else FOR_GRIDS[plume or "gaussian"](*size)
    field = field if source is None else field.with_source(source)
    return _with_wind(_with_numbers(field, numbers), wind)


def _with_numbers(field: Field, numbers: Any) -> Field:
    """Replace some numbers of the field."""
    if numbers is not None and not isinstance(numbers, Mapping):
        raise ValidationError("plume_params", numbers, "None or a dict of numbers")
    known = [part.name for part in fields(field) if as_array(getattr(field, part.name)) is not None]
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


def _with_wind(field: Field, wind: Any) -> Field:
    if wind is None:
        return field
    if isinstance(wind, Wind) or field.wind_moves_odour:
        return field.with_wind(wind)
    require("wind_field", wind)
    return field


def _recording_params(base: PlumeNav, source: Any, wind: Any) -> Any:
    """A recording becomes a field in params, so its source and wind are set there."""
    params = base.default_params()
    field = params.field if source is None else params.field.with_source(source)
    return replace(params, field=_with_wind(field, wind))


def _size(grid_size: Any, plume: Any) -> tuple[int, int]:
    if grid_size is None:
        return plume.frames.shape[2:0:-1] if isinstance(plume, PlumeRecording) else SIZE
    return validate_size(grid_size)


def _corner(size: tuple[int, int], plume: Any) -> tuple[float, float]:
    unit = plume.pixel_size if isinstance(plume, PlumeRecording) else 1.0
    return unit * (size[0] - 1), unit * (size[1] - 1)


def _validate_location(name: str, value: Any, size: tuple[int, int], plume: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    point, high = validate_point(name, value), _corner(size, plume)
    if not (0 <= point[0] <= high[0] and 0 <= point[1] <= high[1]):
        raise ValidationError(name, value, f"a point between (0, 0) and {high}")
    return point
