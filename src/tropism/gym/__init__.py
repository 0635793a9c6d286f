"""The Gymnasium API; importing it registers every environment as `tropism/<id>`."""

from typing import TYPE_CHECKING

from tropism.errors import require_extra
from tropism.lazy_imports import load_on_use

if TYPE_CHECKING:
    from tropism.gym.minari import from_minari, to_minari
    from tropism.gym.recording import Recording, session_of
    from tropism.gym.remote import RemoteVectorEnv

require_extra("gym", "tropism.gym", "gymnasium")

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
    "session_of",
    "to_gymnasium",
    "to_gymnasium_space",
    "to_minari",
]

register_all()

# Names that need another extra are imported on first use.
_HOME = {
    "Recording": ("tropism.gym.recording", "record", ("msgspec", "pyarrow")),
    "RemoteVectorEnv": ("tropism.gym.remote", "client", ("msgspec", "websockets")),
    "session_of": ("tropism.gym.recording", "record", ("msgspec", "pyarrow")),
    "from_minari": ("tropism.gym.minari", "minari", ("minari", "msgspec", "pyarrow")),
    "to_minari": ("tropism.gym.minari", "minari", ("minari", "msgspec", "pyarrow")),
}

if not TYPE_CHECKING:
    __getattr__ = load_on_use(__name__, _HOME)
