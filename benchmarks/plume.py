"""Search in a static Gaussian plume, compared with plume_nav_sim: one in Gymnasium, many in a compiled rollout."""

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import main

PLUME = Comparison(
    name="plume",
    title="Search in a static Gaussian plume, CPU: one through Gymnasium, many in a compiled rollout",
    case="plume",
    sizes=(1, 1_024, 16_384),
    rivals=(Rival("plume_nav_sim", "plume_nav_sim", "plume", {1: 3, 1_024: 500, 16_384: 500}),),
    # The concentration averages 2πσ²/128² = 0.15 over the arena; one agent visits only a part of it.
    mean_range=(0.005, 0.6),
)

if __name__ == "__main__":
    main(PLUME)
