"""The Gymnasium surface; importing it registers every environment as `tropism/<id>`."""

from tropism.errors import MissingExtraError

try:
    import gymnasium as gymnasium
except ImportError as error:
    raise MissingExtraError(
        "gymnasium", None, "Gymnasium", 'tropism.gym needs Gymnasium: pip install "tropism[gym]"'
    ) from error

from tropism.gym.adapter import from_gymnasium
from tropism.gym.env import GymEnv, to_gymnasium
from tropism.gym.plume_env import PlumeEnv, PlumeSearchEnv
from tropism.gym.registration import register_all
from tropism.gym.spaces import from_gymnasium_space, to_gymnasium_space
from tropism.gym.vector import GymVectorEnv

__all__ = [
    "GymEnv",
    "GymVectorEnv",
    "PlumeEnv",
    "PlumeSearchEnv",
    "from_gymnasium",
    "from_gymnasium_space",
    "to_gymnasium",
    "to_gymnasium_space",
]

register_all()
