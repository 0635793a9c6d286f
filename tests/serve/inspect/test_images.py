"""Image observations: marked in the schema, and served as PNG at any step."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tests.serve.cameras import HEIGHT, WIDTH, Camera
from tests.serve.replies import assert_refused
from tests.serve.running import Running, running

from tropism import Session, make
from tropism.serve.inspect.png import png
from tropism.serve.session.environment import ServedEnvironment


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    env = Camera()
    own = {"Camera-v0": ServedEnvironment("Camera-v0", env, env.default_params(), "A camera.")}
    with running("PixelGridWorld-v0", "GridWorld-v0", own=own) as started:
        yield started


def read(reply: httpx.Response) -> Any:
    assert reply.headers["content-type"] == "image/png"
    return np.asarray(Image.open(io.BytesIO(reply.content)))


def begin(caller: httpx.Client, steps: int) -> str:
    view = caller.post("/reset", json={"seed": 1}).json()["view"]
    for _ in range(steps):
        caller.post("/step", json={"action": {"value": 1}})
    return view


def test_a_grey_picture_is_written_as_png():
    picture = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    assert (np.asarray(Image.open(io.BytesIO(png(picture)))) == picture[..., 0]).all()


def test_an_image_observation_is_served_at_any_step(server: Running):
    with server.http("PixelGridWorld-v0") as caller, Session(*make("PixelGridWorld-v0")) as session:
        assert caller.get("/schema").json()["observation"]["properties"]["value"]["x-image"] is True
        view = begin(caller, 2)
        seen = [session.reset(seed=1).obs, session.step(1).obs, session.step(1).obs]
        for step in (2, 0, 1):
            assert (read(caller.get(f"/sessions/{view}/picture?step={step}&of=value")) == seen[step]).all()
            assert read(caller.get(f"/sessions/{view}/picture?step={step}")).shape == (400, 400, 3)


def test_an_image_among_other_fields_is_served_by_its_name(server: Running):
    with server.http("Camera-v0") as caller:
        properties = caller.get("/schema").json()["observation"]["properties"]
        assert [name for name, part in properties.items() if "x-image" in part] == ["frame"]
        view = begin(caller, 2)
        frame = read(caller.get(f"/sessions/{view}/picture?step=2&of=frame"))
        assert frame.shape == (HEIGHT, WIDTH)
        assert frame[:, 2].tolist() == [100, 101, 102, 103]
        assert frame.sum() == 406


def test_the_first_image_replaces_a_missing_picture(server: Running):
    with server.http("Camera-v0") as caller:
        view = begin(caller, 1)
        assert read(caller.get(f"/sessions/{view}/picture?step=1"))[0].tolist() == [0, 100, 0, 0, 0, 0]
        assert read(caller.get("/picture")).shape == (HEIGHT, WIDTH)


@pytest.mark.parametrize(("id", "of"), [("Camera-v0", "time"), ("Camera-v0", "value"), ("GridWorld-v0", "value")])
def test_a_field_that_is_not_an_image_is_an_error(server: Running, id: str, of: str):
    with server.http(id) as caller:
        view = begin(caller, 0)
        words = assert_refused(caller.get(f"/sessions/{view}/picture?step=0&of={of}"), "VALIDATION_ERROR")["message"]
        assert of in words
        assert ("frame" if id == "Camera-v0" else "it has none") in words
