"""A vector of CartPoles stepped from a Python loop, compared with Gymnasium's vector environments and envpool."""

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import main

VECTOR = Comparison(
    name="vector",
    title="Vector environment, CartPole, CPU",
    case="vector",
    sizes=(64, 1_024),
    rivals=(
        Rival("gymnasium NumPy", "gymnasium", "numpy_vector", {64: 3, 1_024: 3}),
        Rival("SyncVectorEnv", "gymnasium", "sync_vector", {64: 8, 1_024: 8}),
        Rival("envpool", "envpool", "vector", {64: 7, 1_024: 20}),
    ),
)

if __name__ == "__main__":
    main(VECTOR)
