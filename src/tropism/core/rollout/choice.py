"""Chooses how a rollout runs: fused on a GPU, natively on the CPU, or compiled by XLA."""

import logging
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tropism.core.devices import num_devices
from tropism.core.fused.choice import reason_not_fused
from tropism.core.fused.engine import run_fused
from tropism.core.native.rollout_choice import choose_native
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.scan import run_steps
from tropism.errors import ValidationError

log = logging.getLogger(__name__)

RolloutEngine = Literal["auto", "native", "fused", "xla"]
Run = Callable[..., tuple[Any, Any]]


def choose_run(plan: RolloutPlan, key: Any, params: Any, engine: RolloutEngine, num_steps: int) -> Run:
    """The function that runs the steps of this rollout.

    `auto` chooses XLA if the rollout is part of another compiled function, which may be differentiated or mapped.
    """
    # Inside a compiled function a new array is a tracer, even if no argument is one.
    is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((plan, key, params, jnp.zeros(()))))
    if engine in ("native", "fused") and num_devices() > 1:
        raise ValidationError("engine", engine, "auto or xla with several devices")
    kind = engine
    if engine == "auto" and num_devices() > 1:
        kind = "xla"
    elif engine == "auto":
        kind = "xla" if is_traced else {"cpu": "native", "gpu": "fused"}.get(jax.default_backend(), "xla")
    if kind == "xla":
        return run_steps
    if kind == "fused":
        run, reason = run_fused, reason_not_fused(plan, key, params, engine == "auto")
    elif is_traced:
        run, reason = run_steps, "rollout: it is part of another compiled function"
    else:
        run, reason = choose_native(plan, key, params, engine == "auto", num_steps)
    if not reason:
        return run
    if engine != "auto":
        cannot = "be fused" if engine == "fused" else "run natively"
        raise ValidationError("engine", engine, "auto or xla", f"this rollout cannot {cannot}: {reason}")
    log.info("rollout of %s on XLA: %s", type(plan.env).__name__, reason)
    return run_steps
