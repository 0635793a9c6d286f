"""Prints one trajectory as a session, as Gymnasium and over a WebSocket, for a comparison of two processes."""

import json
from typing import Any

import gymnasium
import numpy as np
from tests.serve.running import running

from tropism import Session, make
from tropism.client import Client
from tropism.core.native.engine import choose_engine

STEPS = 30


def print_trajectories(id: str) -> None:
    env, params = make(id)
    session = Session(env, params)
    vector = gymnasium.make(f"tropism.gym:tropism/{id}")
    actions = [int(action) for action in np.random.default_rng(0).integers(env.action_space(params).n, size=STEPS)]
    surfaces: dict[str, list[Any]] = {
        "session": [np.asarray(session.reset(seed=5).obs).tolist()],
        "gymnasium": [np.asarray(vector.reset(seed=5)[0]).tolist()],
    }
    with running(id) as server, Client(f"{server.url}/envs/{id}") as client:
        surfaces["websocket"] = [client.reset(seed=5).observation["value"]]
        for action in actions:
            step = session.step(action)
            surfaces["session"].append([np.asarray(step.obs).tolist(), float(step.reward), step.terminated])
            obs, reward, terminated, _, _ = vector.step(action)
            surfaces["gymnasium"].append([np.asarray(obs).tolist(), float(reward), bool(terminated)])
            result = client.step(action)
            surfaces["websocket"].append([result.observation["value"], result.reward, result.done])
            if step.terminated:
                break
    print(json.dumps({"engine": str(choose_engine(env, params)), **surfaces}))
