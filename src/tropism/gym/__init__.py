"""The Gymnasium surface; importing it registers every environment as `tropism/<id>`."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import MissingExtraError

if TYPE_CHECKING:
    from tropism.gym.minari import from_minari, to_minari
    from tropism.gym.recording import Recording
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
    "Recording",
    "RemoteVectorEnv",
    "from_gymnasium",
    "from_gymnasium_space",
    "from_minari",
    "to_gymnasium",
    "to_gymnasium_space",
    "to_minari",
]

register_all()

_MORE = {  # what needs another extra is loaded when it is first used
    "Recording": "tropism.gym.recording",
    "RemoteVectorEnv": "tropism.gym.remote",
    "from_minari": "tropism.gym.minari",
    "to_minari": "tropism.gym.minari",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MORE:
            raise AttributeError(f"module 'tropism.gym' has no attribute {name!r}")
        return getattr(import_module(_MORE[name]), name)
