"""check_environment: a healthy environment passes, and each planted fault is found by exactly its law."""

from typing import Any, ClassVar

import jax.numpy as jnp
import pytest
from tests.core.broken import BROKEN, NanReward, NeverEnds, ResetRaises
from tests.core.lines import HostLine, Line

from tropism.core.check import check_environment
from tropism.core.check.checker import LAWS
from tropism.core.environment import Environment
from tropism.core.registry import make
from tropism.core.spaces import Box
from tropism.core.transforms import auto_reset, frame_stack, normalize_obs, time_limit
from tropism.errors import ValidationError

HOST_SKIPS = ["jit", "scan", "vmap", "params"]


@pytest.mark.parametrize(("law", "place", "env"), BROKEN, ids=[type(env).__name__ for _, _, env in BROKEN])
def test_a_planted_fault_is_found_by_exactly_its_law(law: str, place: str, env: Environment):
    report = check_environment(env)
    assert [result.law for result in report.failed] == [law], str(report)
    assert not report.ok
    (result,) = report.failed
    assert result.place == place, result.message
    assert result.message.startswith(f"{law} failed in {place}: ")
    assert result.message in str(report).replace("\n  ", "\n")
    with pytest.raises(AssertionError, match=law):
        report.raise_if_failed()


def test_every_law_has_a_planted_fault():
    assert {law for law, _, _ in BROKEN} == {law.name for law in LAWS}


def test_a_healthy_pure_environment_keeps_every_law():
    report = check_environment(Line())
    assert [result.status for result in report.results] == ["passed"] * len(LAWS), str(report)
    report.raise_if_failed()


def test_a_healthy_host_environment_keeps_every_law_but_those_of_compilation():
    report = check_environment(HostLine())
    assert report.ok, str(report)
    assert [result.law for result in report.results if result.status == "skipped"] == HOST_SKIPS
    assert {result.message for result in report.results if result.status == "skipped"} == {"host environment"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        auto_reset(Line(), "next_step"),
        auto_reset(frame_stack(time_limit(Line(), 5), 2), "same_step"),
        normalize_obs(Line()),
    ],
    ids=["next_step", "same_step", "normalize"],
)
def test_a_transformed_environment_keeps_the_law(env: Environment):
    report = check_environment(env)
    assert report.ok, str(report)


def test_an_example_is_the_smallest_that_still_fails():
    report = check_environment(NanReward())
    message = report.failed[0].message
    # From x in (-1, 1), one or two steps to the right pass 1.5; no other action is left in.
    assert "reward is nan" in message
    actions = message.split("actions [")[1].split("]")[0].split(", ")
    assert actions in (["2"], ["2", "2"]), message


def test_leaving_the_box_later_is_a_warning_with_the_state():
    class Wanderer(Line):
        def observation_space(self, params: Any) -> Any:
            return Box(-1.0, 1.0, (1,))

    report = check_environment(Wanderer())
    assert report.ok
    (warning,) = report.warned
    assert warning.law == "spaces"
    assert "not in Box" in warning.message
    assert "; state [" in warning.message
    assert warning.message in str(report)


def test_nan_in_an_observation_is_no_mere_warning():
    class Blind(Line):
        def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            obs, *rest = super().step(key, state, action, params)
            return obs * jnp.nan, *rest

    assert [result.law for result in check_environment(Blind()).failed] == ["spaces"]


def test_an_environment_may_declare_itself_endless():
    class Endless(NeverEnds):
        endless: ClassVar[bool] = True

    report = check_environment(Endless())
    assert report.ok
    assert [(r.law, r.message) for r in report.results if r.status == "skipped"] == [("termination", "endless = True")]


def test_what_an_environment_raises_is_in_the_report():
    report = check_environment(ResetRaises())
    assert "KeyError: 'no map'" in report.failed[0].message
    assert [result.status for result in report.results[1:]] == ["skipped"] * (len(LAWS) - 1)


@pytest.mark.parametrize("thing", [None, 3, "CartPole-v1", Line])
def test_what_is_no_environment_fails_the_interface(thing: Any):
    report = check_environment(thing)
    assert [result.law for result in report.failed] == ["interface"]
    assert "not an Environment" in report.failed[0].message


def test_the_pair_that_make_returns_is_accepted_and_progress_names_each_law():
    seen: list[tuple[str, int, int]] = []
    report = check_environment(make("GridWorld-v0"), progress=lambda *news: seen.append(news))
    assert report.ok, str(report)
    assert seen[:-1] == [(law.name, number, len(LAWS)) for number, law in enumerate(LAWS)]
    assert seen[-1][1:] == (len(LAWS), len(LAWS))


def test_the_table_has_one_aligned_row_for_each_law():
    report = check_environment(ResetRaises())
    title, blank, *rows = str(report).split("\n")[: 2 + len(LAWS)]
    assert title == f"ResetRaises breaks 1 of {len(LAWS)} laws"
    assert blank == ""
    assert [row[9 : 9 + len(law.name)] for row, law in zip(rows, LAWS, strict=True)] == [law.name for law in LAWS]
    assert len({row.index(law.statement) for row, law in zip(rows, LAWS, strict=True)}) == 1


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("arguments", [{"seed": -1}, {"seed": 1.5}, {"num_steps": 0}, {"num_steps": "many"}])
def test_a_caller_s_mistake_raises(arguments: dict[str, Any]):
    with pytest.raises(ValidationError):
        check_environment(Line(), **arguments)
