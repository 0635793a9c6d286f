"""CPU time of a step under a policy network: acting and stepping in XLA, or acting in XLA and stepping natively."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tropism import make, rollout
from tropism.core.compiled.packing import reader
from tropism.core.native.batch_engine import make_batch_engine

SIZES = 16, 256, 2_048
STEPS, REPEATS = 400, 3


def microseconds(run: Callable[[], Any]) -> float:
    run()
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.process_time()
        jax.block_until_ready(run())
        times.append(time.process_time() - start)
    return 1e6 * min(times) / STEPS


def main() -> None:
    env, params = make("CartPole-v1")
    network = eqx.nn.MLP(4, 2, 64, 2, jax.nn.tanh, key=jax.random.key(0))

    def policy(obs: Any) -> Any:
        return network(obs).argmax().astype(jnp.int32)

    print("environments  XLA µs/step  native µs/step")
    for size in SIZES:
        batch = make_batch_engine(env, params, size, "same_step", "native")
        every = np.ones(size, bool)
        batch.reset(np.arange(2 * size, dtype=np.uint32).reshape(size, 2), every, every)
        read_obs = reader(batch.program.out.obs)
        act = jax.jit(lambda obs: jax.vmap(network)(obs).argmax(-1))

        def step_natively(batch: Any = batch, act: Any = act, read_obs: Any = read_obs) -> None:
            for _ in range(STEPS):
                batch.step(batch.read_actions(np.asarray(act(read_obs(batch.words)), np.int64)))

        def step_in_xla(size: int = size) -> Any:
            return rollout(env, policy, 0, size, STEPS, params=params, collect=False, engine="xla").episodes

        print(f"{size:12,} {microseconds(step_in_xla):12.1f} {microseconds(step_natively):15.1f}", flush=True)


if __name__ == "__main__":
    main()
