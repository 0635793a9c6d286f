"""Images: they stay uint8 until the convolutions, and agents learn from them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.train.worlds import brief

from tropism.core.registry import make, presets
from tropism.core.spaces import Box, Dict, Discrete, Image
from tropism.core.transforms import frame_stack, grayscale
from tropism.errors import ValidationError
from tropism.train.evaluation import evaluate
from tropism.train.network import ActorCritic
from tropism.train.pixels import ConvLayer, channels_last, has_image, is_image, patches, plan_convolutions
from tropism.train.policies import load, resolve_policy
from tropism.train.ppo import PPO, PPOConfig
from tropism.train.run import CHECKPOINT, train
from tropism.train.training import Training


@pytest.mark.slow
@pytest.mark.parametrize(("size", "stride"), [(4, 4), (3, 2), (3, 1)])
@pytest.mark.parametrize("shape", [(40, 40, 3), (7, 10, 2), (1, 5, 4)])
def test_conv_layer_equals_jax_convolution(size: int, stride: int, shape: tuple[int, ...]) -> None:
    x = jax.random.normal(jax.random.key(0), shape)
    layer = ConvLayer(jax.random.normal(jax.random.key(1), (8, size * size * shape[2])), size, stride)
    kernel = layer.linear.weight.reshape(8, size, size, shape[2]).transpose(1, 2, 3, 0)
    axes = ("NHWC", "HWIO", "NHWC")
    expected = lax.conv_general_dilated(x[None], kernel, (stride, stride), "SAME", dimension_numbers=axes)[0]
    np.testing.assert_allclose(layer(x), np.maximum(expected, 0), atol=1e-5)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Image(40, 40), True),
        (Box(0, 255, (40, 40, 3), np.uint8), True),
        (Box(0, 10, (7, 7, 3), np.uint8), True),
        (Box(0, 255, (4, 40, 40, 3), np.uint8), True),
        (Box(0, 255, (40, 40), np.uint8), True),
        (Box(0, 2, (6, 7), np.uint8), False),
        (Box(0, 1, (40, 40, 3)), False),
        (Box(0, 255, (128,), np.uint8), False),
        (Discrete(4), False),
    ],
)
def test_is_image(space: Any, expected: bool) -> None:
    assert is_image(space) is expected
    assert has_image(Dict({"a": Discrete(2), "b": space})) is expected


def test_frames_become_channels() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (4, 9, 10, 3), np.uint8)
    assert channels_last(jnp.asarray(picture)).shape == (9, 10, 12)
    np.testing.assert_array_equal(channels_last(jnp.asarray(picture))[..., 3:6], picture[1])
    np.testing.assert_array_equal(channels_last(jnp.asarray(picture[..., 0])), picture[..., 0].transpose(1, 2, 0))
    np.testing.assert_array_equal(channels_last(jnp.asarray(picture[0])), picture[0])
    assert channels_last(jnp.asarray(picture[0, ..., 0])).shape == (9, 10, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (5, 5, 3), (7, 7, 3), (24, 24, 3), (40, 40, 3), (210, 160, 3), (4, 84, 84)]
)
def test_images_of_any_size_shrink_to_few_features(shape: tuple[int, ...]) -> None:
    plan = plan_convolutions(shape)
    assert 1 <= plan.features <= 36 * 32
    assert 1 <= len(plan.layers) <= 4
    network = ActorCritic(Box(0, 255, shape, np.uint8), Discrete(2), key=jax.random.key(0))
    assert network(jnp.zeros(shape, jnp.uint8), None)[0].shape == (2,)


@pytest.mark.slow
def test_pixels_are_scaled_by_the_bounds_of_their_space() -> None:
    bright, lit = (
        ActorCritic(Box(0, high, (9, 9, 3), np.uint8), Discrete(2), key=jax.random.key(0)) for high in (255, 1)
    )
    full, ones = bright(jnp.full((9, 9, 3), 255, jnp.uint8), None), lit(jnp.ones((9, 9, 3), jnp.uint8), None)
    np.testing.assert_allclose(full[0], ones[0], rtol=1e-6)


def test_patches_cover_the_image() -> None:
    ones = jnp.ones((7, 10, 2))
    assert patches(ones, 4, 4).shape == (2, 3, 32)
    assert patches(ones, 4, 4).sum() == ones.size


def test_images_stay_uint8_in_the_rollout() -> None:
    trainer = PPO(*make("PixelGridWorld-v0", size=3), PPOConfig(num_envs=4, num_steps=8, total_steps=32))
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    assert state.rollout.obs.dtype == jnp.uint8
    assert not jax.tree.leaves(state.obs_statistics.mean)  # pixels are not normalized
    _, samples = jax.eval_shape(trainer._collect, state, jax.random.key(1))  # pyright: ignore[reportPrivateUsage]
    assert (samples.obs.dtype, samples.next_obs.dtype) == (jnp.uint8, jnp.uint8)
    data = jax.eval_shape(trainer._sequences, state, samples, samples.reward)  # pyright: ignore[reportPrivateUsage]
    assert data[0].dtype == jnp.uint8


@pytest.mark.slow
def test_agent_learns_from_images(tmp_path: Path) -> None:
    """The shortest path through 3 by 3 cells takes 4 steps, a random walk about 20."""
    config = PPOConfig(total_steps=6144, num_steps=64, hidden=32)
    train(Training("PixelGridWorld-v0", {"size": 3}, {}, config, seed=0, seeds=1), tmp_path)
    env, params = make("PixelGridWorld-v0", size=3)
    policies: list[Any] = [resolve_policy("random", env, params), resolve_policy(str(tmp_path), env, params)]
    chance, agent = (evaluate("", env, params, policy, 0, 64).lengths.mean() for policy in policies)
    assert agent < 9
    assert agent < chance / 2


@pytest.mark.slow
def test_recurrent_agent_on_images(tmp_path: Path) -> None:
    state, _ = train(
        Training("PixelGridWorld-v0", {"size": 2}, {}, brief("", recurrent=True, hidden=8).config, 0, 1), tmp_path
    )
    assert state.rollout.memory.cells.shape == (1, 4, 2, 8)
    env, params = make("PixelGridWorld-v0", size=2)
    assert evaluate("agent", env, params, load(tmp_path / CHECKPOINT), 0, 4).lengths.shape == (4,)
    other = make("PixelGridWorld-v0", size=3)
    with pytest.raises(ValidationError, match=r"observes Image\(24, 24, 3\), not Image\(16, 16, 3\)"):
        resolve_policy(str(tmp_path), *other)


def test_image_with_other_observations_needs_a_user_network() -> None:
    with pytest.raises(ValidationError, match="to combine an image with other observations"):
        brief("tests.train.worlds:PictureAndPlace").make_algorithm()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_preset_solves_pixel_grid_world(seed: int, tmp_path: Path) -> None:
    preset = presets("ppo")["PixelGridWorld-v0"]
    _, curve = train(Training("PixelGridWorld-v0", {}, {}, PPOConfig(**preset), seed, 1), tmp_path)
    assert curve[-1][1][0] > 0.9  # of 0.93


@pytest.mark.slow
def test_training_on_stacked_grey_frames() -> None:
    env, params = make("PixelGridWorld-v0", size=3)
    trainer = PPO(frame_stack(grayscale(env), 4), params, brief("").config)
    state = trainer.init(jax.random.key(0))
    assert state.rollout.obs.shape == (4, 4, 24, 24)
    assert np.isfinite(trainer.update(state)[1].loss)
