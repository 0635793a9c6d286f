"""Compiled rollout of CartPole on JAX's default accelerator, compared with gymnax on the same device.

It needs no installation: Tropism is imported from `src/`, the rest from `.carry/` (see `benchmarks/carry.py`).
"""

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import main

DEVICE = Comparison(
    name="device",
    title="Compiled rollout, CartPole, accelerator",
    case="rollout",
    sizes=(1_024, 65_536, 1_048_576),
    rivals=(Rival("gymnax", "gymnax", "rollout", {1_024: 1, 65_536: 1, 1_048_576: 1}),),
    accelerator=True,
)

if __name__ == "__main__":
    main(DEVICE)
