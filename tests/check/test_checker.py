"""check_environment: a correct environment passes, and each planted fault fails exactly its law."""

import inspect
from functools import cache
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest
from jax import random
from tests.check.faulty import BROKEN, ForgetsItsLimit, NanReward, NeverEnds, ResetRaises
from tests.core.lines import HostLine, Line, LineState

from tropism.check import Report, check_environment
from tropism.check.checker import LAWS
from tropism.core.environment import Environment
from tropism.core.registry import make
from tropism.core.spaces import Box
from tropism.core.transforms import auto_reset, frame_stack, normalize_obs, time_limit
from tropism.errors import ValidationError

HOST_SKIPS = ["jit", "scan", "vmap", "params"]


FAULTS = {type(env).__name__: (law, place, env) for law, place, env in BROKEN}


@cache
def check_fault(name: str) -> Report:
    """The report on a planted fault, for its law and those it depends on."""
    law, _, env = FAULTS[name]
    return check_environment(env, laws=(law,))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_its_law_and_none_that_it_depends_on(name: str):
    law, place, _ = FAULTS[name]
    report = check_fault(name)
    assert [result.law for result in report.failures] == [law], str(report)
    assert not report.ok
    (result,) = report.failures
    assert result.place == place, result.message
    assert result.message.startswith(f"{law} failed in {place}: ")
    assert result.message in str(report).replace("\n  ", "\n")
    with pytest.raises(AssertionError, match=law):
        report.raise_if_failed()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_no_other_law(name: str):
    law, _, env = FAULTS[name]
    report = check_environment(env)
    assert [result.law for result in report.failures] == [law], str(report)


def test_every_law_has_a_planted_fault():
    assert {law for law, _, _ in BROKEN} == {law.name for law in LAWS}


def test_a_correct_pure_environment_keeps_all_laws():
    report = check_environment(Line())
    assert [result.status for result in report.results] == ["passed"] * len(LAWS), str(report)
    report.raise_if_failed()


def test_a_correct_host_environment_keeps_all_laws_except_compilation():
    report = check_environment(HostLine())
    assert report.ok, str(report)
    assert [result.law for result in report.results if result.status == "skipped"] == HOST_SKIPS
    assert {result.message for result in report.results if result.status == "skipped"} == {"host environment"}


class KeyedState(LineState):
    key: Any


class Keyed(Line):
    """The state has a random key, and a field has tuples of several lengths."""

    walls: Any = ((1, 2), (3,))

    def reset(self, key: Any, params: Any) -> Any:
        obs, state = super().reset(key, params)
        return obs, KeyedState(state.time, state.x, key)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, *rest = super().step(state.key, state, action, params)
        return obs, KeyedState(after.time, after.x, random.fold_in(state.key, after.time)), *rest


@pytest.mark.slow
def test_a_state_may_hold_a_key_and_a_field_any_tuple():
    report = check_environment(Keyed(), laws=("vmap", "termination"))
    assert report.ok, str(report)
    assert not report.warnings


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
def test_a_transformed_environment_keeps_all_laws(env: Environment):
    report = check_environment(env)
    assert report.ok, str(report)


def test_a_failing_example_is_shrunk():
    report = check_environment(NanReward(), laws=("finite-rewards",))
    message = report.failures[0].message
    # From x in (-1, 1), one or two steps to the right pass 1.5; shrinking removes all other actions.
    assert "reward is nan" in message
    actions = message.split("actions [")[1].split("]")[0].split(", ")
    assert actions in (["2"], ["2", "2"]), message


def test_leaving_the_box_later_is_a_warning_with_the_state():
    class Wanderer(Line):
        def observation_space(self, params: Any) -> Any:
            return Box(-1.0, 1.0, (1,))

    report = check_environment(Wanderer(), laws=("spaces",))
    assert report.ok
    (warning,) = report.warnings
    assert warning.law == "spaces"
    assert "not in Box" in warning.message
    assert "; state [" in warning.message
    assert warning.message in str(report)


def test_nan_in_an_observation_is_a_failure():
    class Blind(Line):
        def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            obs, *rest = super().step(key, state, action, params)
            return obs * jnp.nan, *rest

    assert [result.law for result in check_environment(Blind(), laws=("spaces",)).failures] == ["spaces"]


def test_an_environment_may_declare_itself_endless():
    class Endless(NeverEnds):
        endless: ClassVar[bool] = True

    report = check_environment(Endless(), laws=("termination",))
    assert report.ok
    assert [(result.law, result.message) for result in report.skips] == [("termination", "endless = True")]


def test_an_exception_of_the_environment_is_in_the_report():
    report = check_environment(ResetRaises())
    assert "KeyError: 'no map'" in report.failures[0].message
    assert [result.status for result in report.results[1:]] == ["skipped"] * (len(LAWS) - 1)


@pytest.mark.parametrize("thing", [None, 3, "CartPole-v1", Line])
def test_other_objects_fail_the_interface_law(thing: Any):
    report = check_environment(thing)
    assert [result.law for result in report.failures] == ["interface"]
    assert "not an Environment" in report.failures[0].message


@pytest.mark.slow
def test_the_pair_that_make_returns_is_accepted_and_progress_names_each_law():
    calls: list[tuple[str, int, int]] = []
    report = check_environment(make("GridWorld-v0"), progress=lambda *call: calls.append(call))
    assert report.ok, str(report)
    assert calls[:-1] == [(law.name, number, len(LAWS)) for number, law in enumerate(LAWS)]
    assert calls[-1][1:] == (len(LAWS), len(LAWS))


def test_the_report_has_failures_then_the_table_then_skipped_laws():
    report = check_environment(ResetRaises())
    title, blank, cause, *rest = str(report).split("\n")
    assert (title, blank) == (f"ResetRaises breaks 1 of {len(LAWS)} laws", "")
    assert cause == "  interface failed in reset: KeyError: 'no map'"
    names = ", ".join(law.name for law in LAWS[1:])
    table = [f"failed   interface       {LAWS[0].statement}", f"skipped  {names} (depends on interface, which failed)"]
    assert rest[-3:] == ["", *table]


def test_the_table_has_one_aligned_row_per_checked_law():
    report = check_environment(ForgetsItsLimit(), laws=("flags", "spaces"))
    *_, flags, interface, spaces = str(report).split("\n")
    assert flags.startswith("failed   flags      rewards, ")
    assert interface.startswith("passed   interface  the methods ")
    assert spaces.startswith("passed   spaces     spaces are ")


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    "arguments", [{"seed": -1}, {"seed": 1.5}, {"num_steps": 0}, {"num_steps": "many"}, {"laws": ()}, {"laws": [3]}]
)
def test_invalid_arguments_raise(arguments: dict[str, Any]):
    with pytest.raises(ValidationError):
        check_environment(Line(), **arguments)


def test_laws_are_checked_with_those_they_depend_on():
    calls: list[tuple[str, int, int]] = []
    report = check_environment(Line(), laws=["purity"], progress=lambda *call: calls.append(call))
    assert [result.law for result in report.results] == ["interface", "spaces", "flags", "purity"]
    assert calls[-1] == ("purity", 4, 4)


def test_an_unknown_law_is_rejected_with_the_known_names():
    with pytest.raises(ValidationError, match="laws is 'flag'; expected names among interface, spaces, flags, "):
        check_environment(Line(), laws=("flag",))


MESSAGES = {
    "ArrayField": ["the field `mask` is [0.0, 0.0, 0.0], a numpy.ndarray", "in the params or in the state"],
    "ListField": ["the field `walls` is [1, 2], a list", "make it a tuple"],
    "DictInsideField": ["the field `walls` contains {'left': 2}, a dict"],
    "GymActions": ["Discrete(3), a space of gymnasium", "tropism.Discrete", "from_gymnasium_space"],
    "GymObservations": ["a space of gymnasium", "tropism.Box"],
    "NumberOfActions": ["returned 3 (int), not a Space"],
    "NoInfo": ["(float32[1], LineState, float32[], bool[])", "the info is missing"],
    "OldGymStep": ["the old Gym API's (obs, reward, done, info)", "return (obs, state, reward, done, info)"],
    "GymnasiumStep": ["Gymnasium's (obs, reward, terminated, truncated, info)", "done = terminated | truncated"],
    "GymnasiumReset": ["Gymnasium's (obs, info)", "return (obs, state)"],
    "GymnasiumSignature": ["step(self, action)", "step(self, key, state, action, params)"],
    "BareState": ["the state is float32[]", "subclass of EnvState"],
    "HalfPrecision": ["dtype float16, but Box(-10.0, 10.0, (1,), float32) has dtype float32", ".astype(jnp.float32)"],
    "HalfPrecisionInside": ["observation['far']", "dtype float16"],
    "LongObservation": ["shape (2,), but Box", "has shape (1,)"],
    "ForgetsItsLimit": ["truncated is True, but done is False; return done = terminated | truncated", "step 12"],
    "ForgetsAnUnreachedLimit": ["state.time = 19999", "truncated is True, but done is False"],
    "HostForgetsItsLimit": ["truncated is True, but done is False", "step 12"],
    "NeverEnds": ["`done` was never True in 64 random episodes", "`endless: ClassVar[bool] = True`"],
    "EndlessHost": ["`done` was never True", "`endless: ClassVar[bool] = True`"],
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_names_the_mistake_and_its_remedy(name: str):
    message = check_fault(name).failures[0].message
    for part in MESSAGES[name]:
        assert part in message


@pytest.mark.parametrize(
    ("name", "source", "advice"),
    [
        ("PythonBranch", "2 if state.x < -1.0 else action", "use jnp.where or jax.lax.cond"),
        ("PythonNumber", "x = float(state.x)", "use jnp, not float()"),
    ],
)
def test_an_error_under_jit_shows_the_source_line(name: str, source: str, advice: str):
    report = check_fault(name)
    lines = inspect.getsourcelines(type(FAULTS[name][2]).step)
    number = lines[1] + next(i for i, line in enumerate(lines[0]) if source in line)
    message = report.failures[0].message
    assert f'faulty.py", line {number}, in step\n    ' in message
    assert source in message
    assert advice in message
    assert message in str(report).replace("\n  ", "\n")


class Timed(Line):
    """Ends after a number of steps and returns no flags."""

    limit: int = 7

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, _, _ = super().step(key, state, 1, params)
        return obs, state, reward, state.time >= self.limit, {}


class TimedOrFallen(Timed):
    """Ends at the edges too, so that random episodes never reach the limit."""

    limit: int = 5_000

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, done, _ = Line.step(self, key, state, 2, params)
        return obs, after, reward, done | (after.time >= self.limit), {}


class TimedHost(HostLine):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, _, _ = super().step(key, state, 1, params)
        return obs, state, reward, state.time >= 7, {}


class Bandit(Timed):
    limit: int = 1


class Flagless(Line):
    """Ends at the edges only."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, _, info = super().step(key, state, action, params)
        return obs, state, reward, info["terminated"], {}


@pytest.mark.parametrize(
    ("env", "observed"),
    [
        (Timed(), "all 64 random episodes ended at step 7"),
        (TimedOrFallen(), "an episode ends when state.time is large"),
        (TimedHost(), "all 8 random episodes ended at step 7"),
    ],
)
def test_an_end_that_looks_like_a_time_limit_is_a_warning(env: Environment, observed: str):
    report = check_environment(env, laws=("flags",))
    assert report.ok
    (warning,) = report.warnings
    assert (warning.law, warning.place) == ("flags", "step")
    for part in (observed, "looks like a time limit", '"truncated": truncated'):
        assert part in warning.message


@pytest.mark.slow
@pytest.mark.parametrize("env", [Bandit(), Flagless(), Line(), HostLine()], ids=lambda env: type(env).__name__)
def test_other_ends_are_not_a_warning(env: Environment):
    assert not check_environment(env, laws=("flags",)).warnings
