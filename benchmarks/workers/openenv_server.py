"""An echo environment on OpenEnv's server; runs in the virtual environment of OpenEnv."""

import sys

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed_message: str = ""
    message_length: int = 0


class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id or "echo", step_count=0)
        return EchoObservation(reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        size = len(action.message)
        metadata = {"step": self._state.step_count}
        return EchoObservation(echoed_message=action.message, message_length=size, reward=0.1 * size, metadata=metadata)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_app(Echo, EchoAction, EchoObservation, env_name="echo", max_concurrent_envs=5000)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
