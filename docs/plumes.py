"""Draw the pictures of docs/plumes.md, one per field. Run by `make docs`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from PIL import Image

from tropism.envs.plume import nav as plume_nav
from tropism.envs.plume import tasks as plume_tasks
from tropism.plume import picture
from tropism.plume.fields import Gaussian
from tropism.plume.scene import Scene

HERE = Path(__file__).parent / "pictures"

PLUMES = {
    "gaussian": (plume_nav.PlumeNav(Gaussian(source=(64.0, 64.0), sigma=20.0)), 0),
    "meander": (plume_tasks.meander(), 50),
    "puffs": (plume_tasks.puffs(), 50),
    "puffs_switch_once": (plume_tasks.puffs("switch_once"), 130),
    "puffs_switch_many": (plume_tasks.puffs("switch_many"), 0),
    "puffs_sparse": (plume_tasks.puffs(keep=0.2), 50),
    "puffs_gusty": (plume_tasks.puffs(difficulty="gusty"), 0),
    "singh": (plume_tasks.singh("switch_many"), 0),
    "filaments": (plume_tasks.filaments(), 100),
    "movie": (plume_tasks.movie(), 20),
}


def draw(env: Any, steps: int, seed: int) -> Any:
    """The arena with its plume after `steps` steps, at a higher resolution than in `render`."""
    fine = 4 if max(env.grid_size) < 256 else 1
    params = env.default_params()
    arena = replace(params.arena, shape=tuple(fine * (side - 1) + 1 for side in params.arena.shape))
    reset_key, step_key = jax.random.split(jax.random.key(seed))
    _, state = jax.jit(env.reset)(reset_key, params)

    @jax.jit
    def advance_field(field: Any) -> Any:
        keys = jax.random.split(step_key, steps)
        return jax.lax.scan(lambda state, key: (params.field.advance(key, state), None), field, keys)[0]

    field = advance_field(state.field) if steps else state.field
    scene = Scene(state.agent, arena, params.field, field)
    return jax.jit(picture.paint)(scene, state.trail, params.goal_radius)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, (env, steps) in PLUMES.items():
        print(f"{name}: {steps} steps", file=sys.stderr)
        image = Image.fromarray(jax.device_get(draw(env, steps, seed=3)))
        # By colours, not by pixels: few pixels show the source and the agent.
        few = image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(out / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
