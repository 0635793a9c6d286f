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
    rivals=(Rival("gymnax", "gymnax", "rollout", {1_024: 15, 65_536: 8, 1_048_576: 4}),),
    accelerator=True,
)

if __name__ == "__main__":
    main(DEVICE)
