"""The same seed and actions give the same trajectory on every surface, for every registered id."""

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from jax import random
from tests.ids import ALL, PURE, REPEATABLE, mark_slow
from tests.serve.running import Running, running, talk

from tropism import Session, make, random_policy, rollout
from tropism.core.episode import Timestep
from tropism.gym import GymVectorEnv
from tropism.gym.spaces import from_gym_value, to_gym_value
from tropism.serve.session.json_form import JsonForm
from tropism.wire.codec import encode

NUM_ENVS, NUM_STEPS, SEED = 3, 40, 17
SERVED_STEPS = 9  # enough for episodes of seven steps to end


def short(id: str) -> dict[str, Any]:
    """Params with a short time limit, so that episodes end within the test."""
    env, params = make(id)
    limits = {field.name for field in fields(params)} & {"max_steps"}
    return {"params": dict.fromkeys(limits, 7)} if env.pure else {}


def action_table(env: Any, params: Any) -> Any:
    return np.asarray(env.action_space(params).sample(random.key(0), (NUM_STEPS, NUM_ENVS)))


def run_sessions(env: Any, params: Any, table: Any) -> tuple[list[Any], int]:
    """The results of one Session per environment: rows of (obs, reward, terminated, truncated, next obs)."""
    lanes, ends = [], 0
    for number in range(NUM_ENVS):
        session, lane = Session(env, params), []
        obs = session.reset(seed=SEED + number).obs
        for action in table[:, number]:
            timestep = session.step(action)
            lane.append((obs, *timestep[1:4], timestep.obs))
            obs = timestep.obs
            if timestep.terminated or timestep.truncated:
                obs, ends = session.reset().obs, ends + 1
        lanes.append(lane)
    return lanes, ends


def assert_lanes(lanes: list[Any], obs: Any, reward: Any, terminated: Any, truncated: Any, next_obs: Any) -> None:
    for number, lane in enumerate(lanes):
        for time, row in enumerate(lane):
            where = f"environment {number}, step {time + 1}"
            assert (row[2], row[3]) == (terminated[time][number], truncated[time][number]), where
            np.testing.assert_allclose(obs[time][number], row[0], atol=1e-4, err_msg=where)
            np.testing.assert_allclose(next_obs[time][number], row[4], atol=1e-4, err_msg=where)
            np.testing.assert_allclose(reward[time][number], row[1], atol=1e-4, err_msg=where)


@pytest.mark.parametrize("id", mark_slow(REPEATABLE))
def test_gymnasium_equals_the_session(id: str):
    env, params = make(id, **short(id))
    session, gym = Session(env, params), gymnasium.make(f"tropism.gym:tropism/{id}", **short(id))
    ts, (obs, info) = session.reset(seed=SEED), gym.reset(seed=SEED)
    gym.action_space.seed(SEED)
    to_gym = to_gym_value(session.observation_space) or (lambda obs: obs)
    read = from_gym_value(session.action_space) or (lambda action: action)
    for _ in range(NUM_STEPS):
        assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), obs, to_gym(ts.obs)))
        action = gym.action_space.sample()
        ts, (obs, reward, terminated, truncated, info) = session.step(read(action)), gym.step(action)
        assert (reward, terminated, truncated) == (ts.reward, ts.terminated, ts.truncated)
        assert info["total_reward"] == session.total_reward
        if terminated or truncated:
            ts, (obs, info) = session.reset(), gym.reset()
    assert gym.unwrapped.session.seed == session.seed  # pyright: ignore


@pytest.mark.parametrize("id", mark_slow(PURE))
def test_vector_environment_i_equals_the_session_of_seed_plus_i(id: str):
    env, params = make(id, **short(id))
    table = action_table(env, params)
    lanes, ends = run_sessions(env, params, table)
    assert ends >= NUM_ENVS
    vector = GymVectorEnv(env, NUM_ENVS, params, autoreset_mode="same_step")
    before, _ = vector.reset(seed=SEED)
    rows: list[Any] = []
    for actions in table:
        obs, reward, terminated, truncated, infos = vector.step(actions)
        final = infos.get("final_obs", [None] * NUM_ENVS)
        next_obs = [new if last is None else last for new, last in zip(obs, final, strict=True)]
        rows.append((before, reward, terminated, truncated, next_obs))
        before = obs
    assert_lanes(lanes, *zip(*rows, strict=True))


@pytest.mark.parametrize("id", mark_slow(PURE))
def test_a_reproducible_rollout_equals_the_sessions(id: str):
    env, params = make(id, **short(id))
    policy = random_policy(env, params)
    result = rollout(env, policy, SEED, NUM_ENVS, NUM_STEPS, params=params, reproducible=True)
    steps = result.transitions
    assert steps is not None
    lanes, ends = run_sessions(env, params, np.asarray(steps.action))
    assert result.episodes is None or int(result.episodes.episodes) == ends
    assert_lanes(lanes, steps.obs, steps.reward, steps.terminated, steps.truncated, steps.next_obs)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(*ALL, info="all") as started:
        yield started


def served_reply(session: Session, ts: Timestep) -> Any:
    """The reply of a server for a timestep, after a JSON round trip."""
    return json.loads(encode(JsonForm(session).reply(session, ts)))


@pytest.mark.parametrize("id", mark_slow(ALL))
def test_websocket_and_http_equal_gymnasium(id: str, server: Running):
    gym: Any = gymnasium.make(f"tropism.gym:tropism/{id}", **short(id)).unwrapped
    session: Session = gym.session
    gym.action_space.seed(SEED)
    read = from_gym_value(session.action_space) or (lambda action: action)
    with server.http(id) as http, server.ws(id) as socket:
        gym.reset(seed=SEED)
        again = {"options": short(id)} if short(id) else {}
        begin = {"seed": SEED, **again}
        replies = [http.post("/reset", json=begin).json(), talk(socket, "reset", begin)["data"]]
        for _ in range(SERVED_STEPS):
            expected = served_reply(session, session.timestep)
            for reply in replies:
                assert {name: reply[name] for name in expected} == expected
            if expected["done"]:
                gym.reset()
                replies = [http.post("/reset", json=again).json(), talk(socket, "reset", again)["data"]]
                continue
            action = gym.action_space.sample()
            gym.step(action)
            sent = session.action_space.to_json(session.action_space.coerce(read(action)))
            sent = sent if isinstance(sent, dict) else {"value": sent}
            replies = [http.post("/step", json={"action": sent}).json(), talk(socket, "step", sent)["data"]]
        assert http.get("/history").json()["seed"] == session.seed
        for close in (lambda: http.post("/close"), lambda: socket.send('{"type": "close"}')):
            close()
