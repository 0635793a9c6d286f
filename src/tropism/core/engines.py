"""The engines that `auto` chooses for an environment, with reasons."""

from typing import Any

import jax
import jax.numpy as jnp

from tropism.core.environment import Environment
from tropism.core.fused.choice import reason_not_fused
from tropism.core.native.batch_engine import choose_batch_engine
from tropism.core.native.choice import NOT_INSTALLED
from tropism.core.native.engine import choose_engine
from tropism.core.native.jit import available
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.policy import jax_key, random_policy

NUM_ENVS = 1024  # of the rollout


def describe_engines(env: Environment, params: Any) -> dict[str, str]:
    """The engines of sessions, of batches (vector environments) and of rollouts with random actions."""
    if not env.pure:
        return dict.fromkeys(("sessions", "batches", "rollouts"), "host")
    return {
        "sessions": str(choose_engine(env, params)),
        "batches": str(choose_batch_engine(env, params, "next_step")),
        "rollouts": _rollout_engine(env, params),
    }


def _rollout_engine(env: Environment, params: Any) -> str:
    if jax.default_backend() == "cpu":
        return "xla (native in long rollouts, where verified)" if available() else f"xla ({NOT_INSTALLED})"
    plan = RolloutPlan(env, random_policy(env, params), NUM_ENVS, False, None, False, "auto")
    reason = reason_not_fused(plan, jax_key(0), jax.tree.map(jnp.asarray, params), verified=True)
    return f"xla ({reason})" if reason else "fused"
