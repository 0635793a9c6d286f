"""What a comparison is: one job of ours, the rivals that do the same job, the sizes and the targets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["steps/s", "µs/step", "s"]


@dataclass(frozen=True)
class Rival:
    """One way of doing the job with a peer: `case` names a function of `benchmarks/workers/<peer>.py`."""

    label: str
    peer: str
    case: str
    targets: Mapping[int, float] = field(default_factory=dict[int, float])
    """The wanted ratio ours / rival at a size: a lower bound for rates, an upper one for times."""
    quick: bool = True
    """Whether `python -m benchmarks` includes it (no: its installation alone takes gigabytes)."""


@dataclass(frozen=True)
class Comparison:
    """One table of ratios."""

    name: str
    title: str
    case: str
    sizes: tuple[int, ...]
    rivals: tuple[Rival, ...]
    unit: Unit = "steps/s"
    consumed: tuple[float, float] = (0.9, 1.2)
    """What observations, rewards and flags of a step may add up to on average: less was not run, more is another task.
    CartPole under random play pays 1 a step and ends about one step in 22."""
    accelerator: bool = False
    """Run where JAX runs by default, with the peers of `.carry/`; else on the CPU, with `.peers/`."""

    def quantity(self, steps: int, seconds: float) -> float:
        """What the table shows for a run of `steps` environment steps."""
        return steps / seconds if self.unit == "steps/s" else 1e6 * seconds / steps

    def met(self, ratio: float, target: float) -> bool:
        return ratio >= target if self.unit == "steps/s" else ratio <= target
