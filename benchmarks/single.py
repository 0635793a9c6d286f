"""One CartPole stepped from a Python loop: ours on both engines, and Gymnasium's, created by `gymnasium.make`."""

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import main

SINGLE = Comparison(
    name="single",
    title="One CartPole from a Python loop, CPU",
    case="single",
    sizes=(1,),
    rivals=(Rival("gymnasium", "gymnasium", "single", {1: 0.5}), Rival("tropism on xla", "tropism", "single_xla")),
    unit="µs/step",
)

if __name__ == "__main__":
    main(SINGLE)
