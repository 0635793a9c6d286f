"""Evaluations, recordings and training sweeps on threads, processes or a Ray cluster, equal to a serial run."""

from importlib import import_module
from typing import TYPE_CHECKING

from tropism.errors import require_extra

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
# Names are imported on first use: (module, extra, modules installed by it).
_HOME: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "EvaluationInterruptedError": ("tropism.scale.evaluation", *_TRAIN),
    "Executor": ("tropism.scale.executor", "ray", ()),
    "Processes": ("tropism.scale.processes", "ray", ()),
    "Ray": ("tropism.scale.ray", "ray", ("ray",)),
    "RayVectorEnv": ("tropism.scale.vector", "ray", ("ray", "gymnasium")),
    "Threads": ("tropism.scale.threads", "ray", ()),
    "evaluate": ("tropism.scale.evaluation", *_TRAIN),
    "make_executor": ("tropism.scale.executor", "ray", ()),
    "record": ("tropism.scale.recording", "record", ("msgspec", "pyarrow")),
    "sweep": ("tropism.scale.sweeps", *_TRAIN),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'tropism.scale' has no attribute {name!r}")
        module, extra, needed = _HOME[name]
        require_extra(extra, f"tropism.scale.{name}", *needed)
        return getattr(import_module(module), name)
