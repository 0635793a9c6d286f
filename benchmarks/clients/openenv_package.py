"""A package in the style of OpenEnv, its server, and ours as its class; runs with OpenEnv and our dependencies."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from openenv.core.env_server.http_server import create_app
from openenv_client import expect, verdict
from starlette.testclient import TestClient

from tropism.client import Client
from tropism.openenv import as_class

PACKAGE = {
    "models.py": """
from openenv.core.env_server.types import Action, Observation, State


class AddAction(Action):
    number: int


class AddObservation(Observation):
    total: int = 0


class AddState(State):
    largest: int = 0
""",
    "server/adding.py": """
from openenv.core.env_server.interfaces import Environment

from adding_env.models import AddObservation, AddState


class Adding(Environment):
    def __init__(self):
        super().__init__()
        self._state, self._total = AddState(), 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state, self._total = AddState(episode_id=episode_id), seed or 0
        return AddObservation(total=self._total)

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        self._state.largest = max(self._state.largest, action.number)
        self._total += action.number
        return self._apply_transform(AddObservation(total=self._total, reward=None))

    @property
    def state(self):
        return self._state
""",
    "server/app.py": """
from openenv.core.env_server.http_server import create_app

from adding_env.models import AddAction, AddObservation
from adding_env.server.adding import Adding

app = create_app(Adding, AddAction, AddObservation, env_name="adding")
""",
}


def serve_package(_url):
    """`tropism serve` takes the class of a package; the types are those of its server."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ({"__init__.py": "", "server/__init__.py": ""} | PACKAGE).items():
            path = Path(folder, "adding_env", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        sys.path.insert(0, folder)
        command = [sys.executable, "-m", "tropism", "serve", "adding_env.server.adding:Adding", "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
        try:
            url = server.stdout.readline().split(" at ")[1].split()[0]
            with Client(f"{url}/envs/Adding") as client:
                client.reset(seed=3)
                result = client.step({"number": 4})
                expect((result.observation["total"], result.reward), (7, None))
        finally:
            server.terminate()
            server.wait()


def serve_class(_url):
    """`create_app` serves the class that `as_class` returns."""
    cls = as_class("GridWorld-v0")
    app = create_app(cls, cls.Action, cls.Observation, env_name="grid")
    env = cls()
    expect(env.reset(seed=1).done, False)
    observation = env.step(cls.Action(value=1))
    expect((observation.value, observation.reward), ([0.0, 0.25], -0.009999999776482582))
    expect(env.state.step_count, 1)
    with TestClient(app) as caller, caller.websocket_connect("/ws") as connection:
        connection.send_json({"type": "reset", "data": {"seed": 1}})
        expect(connection.receive_json()["data"]["done"], False)
        connection.send_json({"type": "step", "data": {"value": 1}})
        data = connection.receive_json()["data"]
        expect((data["observation"]["value"], data["reward"]), ([0.0, 0.25], -0.009999999776482582))
        connection.send_json({"type": "state"})
        expect(connection.receive_json()["data"]["step_count"], 1)


CHECKS = {"class of an openenv package, served": serve_package, "as_class in create_app": serve_class}

if __name__ == "__main__":
    print(json.dumps({name: verdict(check, "") for name, check in CHECKS.items()}))
