"""Compiled rollout of CartPole on the CPU, compared with gymnax and the fastest vector environments."""

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import main

ROLLOUT = Comparison(
    name="rollout",
    title="Compiled rollout, CartPole, CPU",
    case="rollout",
    sizes=(1_024, 16_384),
    rivals=(
        Rival("gymnax", "gymnax", "rollout", {1_024: 10, 16_384: 10}),
        Rival("gymnasium NumPy", "gymnasium", "numpy_vector", {1_024: 1, 16_384: 1}),
        Rival("envpool", "envpool", "vector"),
        Rival("PufferLib C", "pufferlib", "vector", quick=False),
    ),
)

if __name__ == "__main__":
    main(ROLLOUT)
