"""Transforms: functions from an environment to an environment, correct in any order."""

from tropism.core.transforms.auto_reset import apply_transform, auto_reset
from tropism.core.transforms.limits import episode_stats, randomize_params, scale_reward, time_limit
from tropism.core.transforms.observations import frame_stack, grayscale, normalize_obs, resize
from tropism.core.transforms.transform import Transform

__all__ = [
    "Transform",
    "apply_transform",
    "auto_reset",
    "episode_stats",
    "frame_stack",
    "grayscale",
    "normalize_obs",
    "randomize_params",
    "resize",
    "scale_reward",
    "time_limit",
]
