"""The Gymnasium surface; importing it registers every environment as `tropism/<id>`."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import MissingExtraError

if TYPE_CHECKING:
    from tropism.gym.remote import RemoteVectorEnv

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
    "RemoteVectorEnv",
    "from_gymnasium",
    "from_gymnasium_space",
    "to_gymnasium",
    "to_gymnasium_space",
]

register_all()

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """What needs the extra `client` is loaded when it is first used."""
        if name != "RemoteVectorEnv":
            raise AttributeError(f"module 'tropism.gym' has no attribute {name!r}")
        return import_module("tropism.gym.remote").RemoteVectorEnv
