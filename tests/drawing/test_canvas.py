"""Shapes have the right areas, centres and orientation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tropism.drawing import canvas as draw

PAPER = draw.blank(60, 80)


def ink(canvas: draw.Canvas) -> np.ndarray:
    """How much of each pixel is covered by black on white."""
    return 1 - np.asarray(canvas)[..., 0] / 255


def centroid(canvas: draw.Canvas) -> tuple[float, float]:
    cover = ink(canvas)
    x, y = draw.pixels(canvas)
    return float((cover * x).sum() / cover.sum()), float((cover * y).sum() / cover.sum())


def test_a_blank_canvas_has_one_colour():
    picture = draw.finish(draw.blank(3, 5, draw.GREEN))
    assert picture.shape == (3, 5, 3)
    assert picture.dtype == jnp.uint8
    assert (np.asarray(picture) == draw.GREEN).all()


def test_positive_y_is_up():
    high = ink(draw.disc(PAPER, (40, 50), 5, draw.BLACK))
    assert high[:20].sum() > 0
    assert high[20:].sum() == 0


@pytest.mark.parametrize(
    ("canvas", "area", "center"),
    [
        (draw.disc(PAPER, (30, 20), 12, draw.BLACK), np.pi * 12**2, (30, 20)),
        (draw.ring(PAPER, (30, 30), 15, 4, draw.BLACK), 2 * np.pi * 15 * 4, (30, 30)),
        (draw.segment(PAPER, (10, 10), (50, 40), 6, draw.BLACK), 50 * 6 + np.pi * 3**2, (30, 25)),
        (draw.rectangle(PAPER, (40, 30), (30, 10), draw.BLACK), 300, (40, 30)),
        (draw.rectangle(PAPER, (40, 30), (30, 10), draw.BLACK, angle=0.7), 300, (40, 30)),
        (draw.polygon(PAPER, [(10, 10), (50, 10), (30, 40)], draw.BLACK), 600, (30, 20)),
        (draw.polygon(PAPER, [(30, 40), (50, 10), (10, 10)], draw.BLACK), 600, (30, 20)),
    ],
    ids=["disc", "ring", "segment", "rectangle", "turned", "polygon", "polygon the other way round"],
)
def test_area_and_centre_are_exact(canvas: draw.Canvas, area: float, center: tuple[float, float]):
    assert ink(canvas).sum() == pytest.approx(area, rel=0.02)
    assert centroid(canvas) == pytest.approx(center, abs=0.2)


def test_rotation_is_counter_clockwise():
    cover = ink(draw.rectangle(PAPER, (40, 30), (40, 4), draw.BLACK, angle=np.pi / 4))
    assert cover[17, 52] == 1
    assert cover[42, 52] == 0


def test_a_segment_without_length_is_a_dot():
    assert ink(draw.segment(PAPER, (20, 20), (20, 20), 10, draw.BLACK)).sum() == pytest.approx(np.pi * 25, rel=0.02)


def test_pixels_outside_a_shape_are_unchanged():
    canvas = draw.disc(draw.blank(20, 20, draw.BLUE), (10, 10), 4, draw.RED)
    picture = np.asarray(draw.finish(canvas))
    assert (picture[0, 0] == draw.BLUE).all()
    assert (picture[10, 10] == draw.RED).all()


def test_enlarge_repeats_every_pixel():
    cells = np.arange(12).reshape(2, 2, 3)
    assert np.array_equal(draw.enlarge(cells, 3), np.kron(cells, np.ones((3, 3, 1), int)))


def test_shapes_work_under_jit_and_vmap():
    centers = jnp.array([[10.0, 10.0], [50.0, 40.0]])
    batch = jax.jit(jax.vmap(lambda center: draw.disc(PAPER, center, 5.0, draw.BLACK)))(centers)
    for canvas, center in zip(batch, centers, strict=True):
        assert centroid(canvas) == pytest.approx(center.tolist(), abs=0.1)
