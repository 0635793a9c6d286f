"""Compare the statistics of our plumes with those of other code, and write the table of docs/science.md.

The values of the others are in benchmarks/results/plume_statistics.json. They were measured with pompy 0.1.1 (puffs
that scatter in z, a step of 0.05 s with the noise of the paper's 0.01 s, 5 puffs per second) and with the released
simulator of Singh et al. in a constant wind.
"""

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.plume.fields import Field, Filaments, Puffs

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "plume_statistics.json"
PAGE = HERE / "science.md"
BEGIN, END = "<!-- plume statistics -->", "<!-- end of plume statistics -->"
CONTACT = {"puffs": 1e-4, "filaments": 1e3}  # concentrations above this are contacts
FIELDS: dict[str, tuple[Field, int, int, int]] = {  # field, realisations, samples of each, steps between samples
    "puffs": (Puffs(square=True), 64, 100, 25),
    "filaments": (Filaments(rate=5.0, max_puffs=700), 32, 400, 10),
}


def statistics(series: NDArray[Any], threshold: float) -> dict[str, list[float]]:
    """Mean, standard deviation and intermittency at each point, with standard errors, of (block, sample, point)."""
    blocks = {"mean": series.mean(1), "deviation": series.std(1), "intermittency": (series > threshold).mean(1)}
    result: dict[str, list[float]] = {}
    for name, values in blocks.items():
        middle = series.reshape(-1, series.shape[-1]).std(0) if name == "deviation" else values.mean(0)
        result[name] = middle.tolist()
        result[f"{name}_error"] = (values.std(0, ddof=1) / np.sqrt(len(values))).tolist()
    return result


def simulate(case: str, points: Any) -> NDArray[Any]:
    field, num, samples, stride = FIELDS[case]

    def sample(state: Any, key: Any) -> tuple[Any, Any]:
        state = jax.lax.scan(lambda s, k: (field.advance(k, s), None), state, random.split(key, stride))[0]
        return state, field.concentration(state, points)

    @jax.jit
    @jax.vmap
    def realisation(key: Any) -> Any:
        return jax.lax.scan(sample, field.init(key), random.split(key, samples))[1]

    return np.asarray(realisation(random.split(random.key(0), num)), float)


def table(case: str, theirs: dict[str, Any]) -> str:
    points = theirs["points"]
    ours = statistics(simulate(case, jnp.asarray(points)), CONTACT[case])
    names = ("mean", "deviation", "intermittency")
    rows = ["| point (m) | " + " | ".join(f"{name}, ours | theirs" for name in names) + " |", "|---|" + "---|" * 6]
    for index, point in enumerate(points):
        cells = [
            f"{values[name][index]:.3g} ± {values[f'{name}_error'][index]:.1g}"
            for name in names
            for values in (ours, theirs)
        ]
        rows.append(f"| ({point[0]:g}, {point[1]:g}) | " + " | ".join(cells) + " |")
    return f"{theirs['title']}\n\n" + "\n".join(rows)


def main() -> None:
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    text = "\n\n".join(table(case, theirs) for case, theirs in results.items())
    page = PAGE.read_text()
    block = f"{BEGIN}\n\n{text}\n\n{END}"
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: block, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
