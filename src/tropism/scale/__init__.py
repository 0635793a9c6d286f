"""Evaluations, recordings and training sweeps on threads, processes or a Ray cluster, equal to a serial run."""

from typing import TYPE_CHECKING

from tropism.lazy_imports import load_on_use

if TYPE_CHECKING:
    from tropism.scale.evaluation import EvaluationInterruptedError, evaluate
    from tropism.scale.executor import Executor, make_executor
    from tropism.scale.processes import Processes
    from tropism.scale.ray import Ray
    from tropism.scale.recording import record
    from tropism.scale.sweeps import sweep
    from tropism.scale.threads import Threads
    from tropism.scale.vector import RayVectorEnv

__all__ = [
    "EvaluationInterruptedError",
    "Executor",
    "Processes",
    "Ray",
    "RayVectorEnv",
    "Threads",
    "evaluate",
    "make_executor",
    "record",
    "sweep",
]

_TRAIN = ("train", ("optax", "matplotlib", "msgspec", "websockets"))
_HOME = {
    "EvaluationInterruptedError": ("tropism.scale.evaluation", *_TRAIN),
    "Executor": "tropism.scale.executor",
    "Processes": "tropism.scale.processes",
    "Ray": ("tropism.scale.ray", "ray", ("ray",)),
    "RayVectorEnv": ("tropism.scale.vector", "ray", ("ray", "gymnasium")),
    "Threads": "tropism.scale.threads",
    "evaluate": ("tropism.scale.evaluation", *_TRAIN),
    "make_executor": "tropism.scale.executor",
    "record": ("tropism.scale.recording", "record", ("msgspec", "pyarrow")),
    "sweep": ("tropism.scale.sweeps", *_TRAIN),
}

if not TYPE_CHECKING:
    __getattr__ = load_on_use(__name__, _HOME)
