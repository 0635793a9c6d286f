"""Evaluations, recordings and sweeps on threads and processes equal the serial run."""

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import run
from tests.interrupting import STARTED, interrupt, start, wait_for
from tests.scale import jobs
from tests.scale.jobs import CARTPOLE, SMALL, WALK, assert_equal, kill_worker

from tropism import make, random_policy
from tropism.core.rollout.policy import FunctionPolicy, HostFunctionPolicy
from tropism.errors import MissingExtraError, ProcessError, ValidationError
from tropism.record import Reader
from tropism.scale import EvaluationInterruptedError, Processes, Threads, evaluate, make_executor, record, sweep
from tropism.scale.sweeps import grid
from tropism.train import evaluate as evaluate_here
from tropism.train.run import CHECKPOINT


def test_threads_equal_the_serial_run() -> None:
    policy = random_policy(*CARTPOLE)
    serial = evaluate("random", *CARTPOLE, policy, 5, 2500)
    assert_equal(serial, evaluate_here("random", *CARTPOLE, policy, 5, 2500))
    done: list[int] = []
    assert_equal(serial, evaluate("random", *CARTPOLE, policy, 5, 2500, done.append, on="threads"))
    assert len(done) == 3
    assert done[-1] == 2500


def test_a_policy_with_a_state_is_not_shared_by_threads() -> None:
    serial = evaluate("walk", *CARTPOLE, WALK, 0, 40, max_steps=30)
    assert len(set(serial.returns)) > 1
    assert_equal(serial, evaluate("walk", *CARTPOLE, WALK, 0, 40, on=Threads(4), max_steps=30))


@pytest.mark.slow
def test_paths_of_shards_are_joined() -> None:
    env, params = make("PlumeNav-v0", params={"max_steps": 12})
    serial = evaluate("walk", env, params, WALK, 0, 10)
    assert serial.search is not None
    assert serial.search.paths.shape[1:] == (10, 2)
    assert_equal(serial, evaluate("walk", env, params, WALK, 0, 10, on="threads:2"))


def test_recordings_on_threads_have_the_episodes_of_the_serial_one(tmp_path: Path) -> None:
    totals = [record(*CARTPOLE, WALK, tmp_path / str(on), 3, 20, 50, on=on) for on in (None, "threads")]
    assert totals[0] == totals[1]
    one, other = (list(Reader(tmp_path / name)) for name in ("None", "threads"))
    assert [episode.seed for episode in one] == list(range(3, 23))
    for mine, yours in zip(one, other, strict=True):
        assert mine.seed == yours.seed
        np.testing.assert_array_equal(mine.observations, yours.observations)
        np.testing.assert_array_equal(mine.actions, yours.actions)


def test_ctrl_c_keeps_the_first_episodes() -> None:
    policy = random_policy(*CARTPOLE)

    def press(done: int) -> None:
        if done >= 2000:
            raise KeyboardInterrupt

    with pytest.raises(EvaluationInterruptedError) as stopped:
        evaluate("random", *CARTPOLE, policy, 0, 5000, press)
    partial_result = stopped.value.partial
    assert partial_result is not None
    whole = evaluate("random", *CARTPOLE, policy, 0, 5000, on="threads")
    np.testing.assert_array_equal(partial_result.returns, whole.returns[:2000])


class OutOfOrder:
    """Runs the first and the third shard, and is then interrupted."""

    def run(self, job: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number in (0, 2):
            yield number, job(shards[number])
        raise KeyboardInterrupt

    def close(self) -> None:
        """Nothing to close."""


def test_an_interrupted_evaluation_ends_before_the_first_missing_episode() -> None:
    with pytest.raises(EvaluationInterruptedError) as stopped:
        evaluate("walk", *CARTPOLE, WALK, 0, 40, on=OutOfOrder())
    assert stopped.value.partial is not None
    assert len(stopped.value.partial.returns) == 8


def test_a_wrong_executor_is_refused() -> None:
    for wrong in ("cloud", "threads:", "threads:x", "processes:-1", 3, "ray://", "ray://host"):
        with pytest.raises(ValidationError, match="on is"):
            make_executor(wrong)
    with pytest.raises(ValidationError, match="workers"):
        make_executor("threads:0")


def test_no_cluster_and_no_ray(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "evaluate", "CartPole-v1", "--on", "ray://127.0.0.1:1") == 2
    assert "no Ray cluster answers at ray://127.0.0.1:1" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"tropism\[ray\]\""):
        make_executor("ray")


def test_a_job_that_cannot_be_pickled_is_refused() -> None:
    policy = FunctionPolicy(lambda obs: 0, takes_key=False)
    with pytest.raises(ValidationError, match="cannot be sent to another process"):
        evaluate("local", *CARTPOLE, policy, 0, 10, on="processes")


def test_a_grid_has_all_combinations() -> None:
    trainings = grid(SMALL, {"learning_rate": [1e-3, 3e-4], "hidden": [16, 32]})
    assert next(iter(trainings)) == "learning_rate=0.001,hidden=16"
    assert [each.config.hidden for each in trainings.values()] == [16, 32, 16, 32]
    with pytest.raises(ValidationError, match="sweep"):
        grid(SMALL, {"speed": [1]})


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced() -> None:
    policy, executor = random_policy(*CARTPOLE), Processes(2)
    kill = kill_worker(lambda: multiprocessing.active_children()[0].pid or 0, stop_after=1000, kill_after=3000)
    killed = evaluate("random", *CARTPOLE, policy, 0, 5000, kill, on=executor)
    assert executor.replaced == 1
    assert multiprocessing.active_children() == []
    assert_equal(killed, evaluate("random", *CARTPOLE, policy, 0, 5000))


@pytest.mark.slow
def test_errors_in_a_process_are_raised_here() -> None:
    with pytest.raises(ZeroDivisionError, match="a fault of the policy") as failed:
        evaluate("fail", *CARTPOLE, HostFunctionPolicy(jobs.fail), 0, 4, on="processes:1")
    assert "jobs.py" in str(failed.value.__cause__)
    with pytest.raises(ProcessError, match="ended 3 times"):
        evaluate("exit", *CARTPOLE, HostFunctionPolicy(jobs.exit_now), 0, 4, on="processes:1")
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_sweep_trains_the_agents_of_serial_runs(tmp_path: Path) -> None:
    trainings = grid(SMALL, {"learning_rate": [1e-3, 3e-4]})
    curves = [sweep(trainings, tmp_path / str(on), on=on) for on in (None, "threads")]
    assert curves[0] == curves[1]
    for name in trainings:
        one, other = (tmp_path / on / name / CHECKPOINT for on in ("None", "threads"))
        assert one.read_bytes() == other.read_bytes()
    assert len({(tmp_path / "threads" / name / CHECKPOINT).read_bytes() for name in trainings}) == 2


@pytest.mark.slow
def test_the_command_prints_partial_results_after_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROPISM_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    arguments = ("--policy", "tests.scale.jobs:Slow", "--episodes", "100000", "--on", "threads:2")
    process = start(STARTED, "evaluate", "CartPole-v1", *arguments)
    wait_for(tmp_path / "mark")
    while (tmp_path / "mark").stat().st_size < 10_000:  # all parts have been submitted, and some are complete
        assert process.poll() is None
    assert "of 100,000 episodes" in interrupt(process)


def test_the_command_train_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = partial(run, monkeypatch, "train", "CartPole-v1", "-o", str(tmp_path / "sweep"))
    small = ("--total-steps", "64", "--num-envs", "4", "--num-steps", "16", "--epochs", "1")
    assert command(*small, "--sweep", "learning-rate=1e-3,oops") == 2
    assert command(*small, "--sweep", "learning-rate=1e-3,3e-4", "--resume") == 2
    assert command(*small, "--sweep", "learning-rate=1e-3,3e-4", "--on", "threads") == 0
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == [
        "learning_rate=0.0003",
        "learning_rate=0.001",
    ]
    assert command(*small, "--sweep", "learning-rate=1e-3", "--on", "threads") == 2
