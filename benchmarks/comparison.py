"""A comparison: one workload of ours, the rivals that run the same workload, the sizes and the targets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["steps/s", "µs/step", "s"]


@dataclass(frozen=True)
class Rival:
    """The workload in another library: `case` names a function of `benchmarks/workers/<peer>.py`."""

    label: str
    peer: str
    case: str
    targets: Mapping[int, float] = field(default_factory=dict[int, float])
    """Target ratio ours / rival by size: a lower bound for rates, an upper bound for times."""
    quick: bool = True
    """Whether `python -m benchmarks` includes it; false if its installation takes gigabytes."""


@dataclass(frozen=True)
class Comparison:
    """One table of ratios."""

    name: str
    title: str
    case: str
    sizes: tuple[int, ...]
    rivals: tuple[Rival, ...]
    unit: Unit = "steps/s"
    mean_range: tuple[float, float] = (0.9, 1.2)
    """Range of the mean over steps of the sum of observations, rewards and flags: a check that the task was run.
    CartPole under random actions has a reward of 1 per step and ends at about one step in 22."""
    accelerator: bool = False
    """Whether to run on JAX's default device, with the peers in `.carry/`; otherwise on the CPU, with `.peers/`."""

    def quantity(self, steps: int, seconds: float) -> float:
        """The value in the table for a run of `steps` environment steps."""
        return steps / seconds if self.unit == "steps/s" else 1e6 * seconds / steps

    def meets(self, ratio: float, target: float) -> bool:
        return ratio >= target if self.unit == "steps/s" else ratio <= target
