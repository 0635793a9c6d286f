"""Run the quick comparisons with few repeats and print their tables; no result is stored."""

from benchmarks.measure import Effort, compare
from benchmarks.plume import PLUME
from benchmarks.rollout import ROLLOUT
from benchmarks.single import SINGLE
from benchmarks.table import rows_as_text
from benchmarks.vector import VECTOR

for comparison in (ROLLOUT, SINGLE, VECTOR, PLUME):
    rivals = [rival for rival in comparison.rivals if rival.quick]
    print(rows_as_text(compare(comparison, rivals, comparison.sizes, Effort(repeats=3, seconds=0.3))), end="\n\n")
