"""Reinforcement-learning environments as pure functions.

Every name is loaded when it is first used, so that `import tropism.client` needs no JAX.
"""

from typing import TYPE_CHECKING

from tropism.lazy_imports import load_on_use

if TYPE_CHECKING:
    from tropism.check import check_environment
    from tropism.core.adapters.class_based import AgentEnvironment, adapt
    from tropism.core.adapters.language import Language
    from tropism.core.environment import Environment, EnvState
    from tropism.core.host import Host
    from tropism.core.params import EnvParams
    from tropism.core.registry import EnvironmentSpec, make, register, registered
    from tropism.core.rollout.api import rollout
    from tropism.core.rollout.policy import Policy, random_policy
    from tropism.core.session.session import EnvironmentState, Session, Timestep
    from tropism.core.spaces import (
        Box,
        Dict,
        Discrete,
        Image,
        Model,
        MultiBinary,
        MultiDiscrete,
        Record,
        Space,
        Text,
        Tuple,
    )
    from tropism.core.transforms import (
        Transform,
        apply_transform,
        auto_reset,
        episode_stats,
        frame_stack,
        grayscale,
        normalize_obs,
        randomize_params,
        resize,
        scale_reward,
        time_limit,
    )
    from tropism.core.wrapper import Wrapper
    from tropism.envs.chat import Reply
    from tropism.envs.coding.tasks import Task
    from tropism.envs.plume.nav import PlumeNav
    from tropism.errors import (
        DivergedError,
        MissingExtraError,
        StateError,
        TropismError,
        UnknownEnvironmentError,
        ValidationError,
    )
    from tropism.wire.messages import Action, Observation, State
    from tropism.wire.messages.chat import ChatAction
    from tropism.wire.messages.coding import CodeAction
    from tropism.wire.messages.echo import EchoAction
    from tropism.wire.messages.shell import ShellAction

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AgentEnvironment",
    "Box",
    "ChatAction",
    "CodeAction",
    "Dict",
    "Discrete",
    "DivergedError",
    "EchoAction",
    "EnvParams",
    "EnvState",
    "Environment",
    "EnvironmentSpec",
    "EnvironmentState",
    "Host",
    "Image",
    "Language",
    "MissingExtraError",
    "Model",
    "MultiBinary",
    "MultiDiscrete",
    "Observation",
    "PlumeNav",
    "Policy",
    "Record",
    "Reply",
    "Session",
    "ShellAction",
    "Space",
    "State",
    "StateError",
    "Task",
    "Text",
    "Timestep",
    "Transform",
    "TropismError",
    "Tuple",
    "UnknownEnvironmentError",
    "ValidationError",
    "Wrapper",
    "__version__",
    "adapt",
    "apply_transform",
    "auto_reset",
    "check_environment",
    "episode_stats",
    "frame_stack",
    "grayscale",
    "make",
    "normalize_obs",
    "random_policy",
    "randomize_params",
    "register",
    "registered",
    "resize",
    "rollout",
    "scale_reward",
    "time_limit",
]

_NAMES = {
    "tropism.core.adapters.class_based": "AgentEnvironment adapt",
    "tropism.check": "check_environment",
    "tropism.core.adapters.language": "Language",
    "tropism.core.environment": "Environment EnvState",
    "tropism.core.host": "Host",
    "tropism.core.params": "EnvParams",
    "tropism.core.registry": "EnvironmentSpec make register registered",
    "tropism.core.rollout.api": "rollout",
    "tropism.core.rollout.policy": "Policy random_policy",
    "tropism.core.session.session": "EnvironmentState Session Timestep",
    "tropism.core.spaces": "Box Dict Discrete Image Model MultiBinary MultiDiscrete Record Space Text Tuple",
    "tropism.core.transforms": (
        "Transform apply_transform auto_reset episode_stats frame_stack grayscale normalize_obs randomize_params "
        "resize scale_reward time_limit"
    ),
    "tropism.core.wrapper": "Wrapper",
    "tropism.envs.chat": "Reply",
    "tropism.envs.coding.tasks": "Task",
    "tropism.envs.plume.nav": "PlumeNav",
    "tropism.errors": (
        "DivergedError MissingExtraError StateError TropismError UnknownEnvironmentError ValidationError"
    ),
    "tropism.wire.messages": "Action Observation State",
    "tropism.wire.messages.chat": "ChatAction",
    "tropism.wire.messages.coding": "CodeAction",
    "tropism.wire.messages.echo": "EchoAction",
    "tropism.wire.messages.shell": "ShellAction",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker that saw this function would accept any misspelt name
    __getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
