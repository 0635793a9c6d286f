"""Sessions with some steps, and their pictures."""

import io
from typing import Any

import numpy as np
from PIL import Image
from tests.serve.requests import act


def start_session(caller: Any, actions: list[int], seed: int = 1) -> str:
    view = caller.post("/reset", json={"seed": seed}).json()["view"]
    for action in actions:
        assert caller.post("/step", json=act(action)).status_code == 200
    return view


def picture_of(reply: Any) -> Any:
    assert reply.headers["content-type"] == "image/png"
    return np.asarray(Image.open(io.BytesIO(reply.content)))
