"""evaluate: all policies run the same seeded episodes, and the statistics match the episodes."""

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from tests.serve.running import running
from typer.testing import CliRunner

from tropism.cli import app
from tropism.core.registry import make
from tropism.core.session.session import Session
from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ServerError, ValidationError
from tropism.plume import picture
from tropism.plume.motion import Cardinal, Continuous, RunTumble
from tropism.plume.receptors import Saturating
from tropism.plume.sensors import Concat, Concentration, Odour, Position, WindSense
from tropism.plume.start import Start
from tropism.plume.strategies.catalog import NAMES, make_strategy
from tropism.serve.session.environment import ServedEnvironment
from tropism.train import pictures
from tropism.train.evaluation import (
    Evaluation,
    SearchResults,
    bootstrap_interval,
    evaluate,
    success_by_distance,
    wilson_interval,
)
from tropism.train.evaluation import evaluate_episodes as play
from tropism.train.language_model import LanguageModel
from tropism.train.policies import expand_agents, resolve_policy
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, train
from tropism.train.runner import LocalRunner
from tropism.train.training import Training

OWN = """
def upright(obs):
    return int(obs[2] > 0)

def drawing(key, obs):
    from jax import random
    return random.randint(key, (), 0, 2)

class Alternating:
    def init(self, key):
        return 0
    def act(self, key, memory, obs):
        return memory % 2, memory + 1

class Parrot:
    def __init__(self):
        self.heard = []
    def init(self, key):
        return 0
    def act(self, key, memory, obs):
        self.heard.append(obs.echoed_message)
        return {"message": str(memory)}, memory + 1

class Counting:
    def reset(self, seed):
        self.steps = seed % 2

    def __call__(self, obs):
        self.steps += 1
        return self.steps % 2

word = "left"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture(scope="module")
def meander() -> Any:
    return make("PlumeNavMeander-v0", params={"max_steps": 60})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "run-and-tumble", "cast-and-surge"])
def test_strategy_acts_the_same_in_a_session_and_compiled(name: str, meander: Any) -> None:
    env, params = meander
    strategy: Any = resolve_policy(name, env, params)
    compiled = evaluate(name, env, params, strategy, 3, 4)
    played = play(name, LocalRunner(Session(env, params)), strategy, 3, 4)
    assert compiled.search is not None
    assert played.search is not None
    assert played.lengths.tolist() == compiled.lengths.tolist()
    assert played.search.found.tolist() == compiled.search.found.tolist()
    np.testing.assert_allclose(played.returns, compiled.returns, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(played.search.efficiency, compiled.search.efficiency, rtol=1e-4)
    moments = len(played.search.paths)
    np.testing.assert_array_equal(played.search.paths, compiled.search.paths[:moments])


@pytest.mark.parametrize("id", ["CartPole-v1", "PlumeNav-v0"])
def test_native_episodes_equal_compiled_ones(id: str) -> None:
    env, params = make(id, params={"max_steps": 40})
    policy = resolve_policy("random", env, params)
    native, xla = (evaluate("random", env, params, policy, 3, 3, engine=engine) for engine in ("native", "xla"))
    np.testing.assert_array_equal(native.lengths, xla.lengths)
    np.testing.assert_allclose(native.returns, xla.returns)


def test_search_times_have_no_native_engine() -> None:
    tracking = make("SourceTracking1D-v0")
    policy = resolve_policy("random", *tracking)
    with pytest.raises(ValidationError, match="on XLA"):
        evaluate("random", *tracking, policy, 0, 2, engine="native")


def test_environment_without_a_source_has_returns_only(tmp_path: Path) -> None:
    env, params = make("CartPole-v1")
    chance: Any = resolve_policy("random", env, params)
    result = evaluate("random", env, params, chance, 0, 64)
    assert result.search is None
    assert result.returns.tolist() == result.lengths.tolist()  # CartPole pays 1 a step
    assert 15 < result.returns.mean() < 30
    assert set(result.summary()) == {"policy", "episodes", "seed", "return", "steps"}
    pictures.draw_evaluation("CartPole-v1", env, params, [result], tmp_path / "returns.png")
    assert (tmp_path / "returns.png").read_bytes().startswith(b"\x89PNG")


def test_evaluation_plot_is_a_grid_of_equal_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env, params = make("PlumeNav-v0")
    corners = np.array([[[40.0, 40.0], [80.0, 60.0]]])  # between them no search began
    searched = SearchResults(np.array([True, False]), np.ones(2), corners)
    evaluations = [Evaluation(name, 0, np.ones(2), np.ones(2, int), searched) for name in "abc"]
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    pictures.draw_evaluation("PlumeNav-v0", env, params, evaluations, tmp_path / "searches.png")
    drawn[0].draw_without_rendering()
    *grid, _bar = (axes.get_position() for axes in drawn[0].axes)
    places = np.array([cell.bounds for cell in grid]).reshape(3, 3, 4)  # two episodes and a map for each policy
    np.testing.assert_allclose(places[..., 2:], places[0, 0, 2:] + np.zeros((3, 3, 2)), rtol=1e-2)
    np.testing.assert_allclose(places[0, :, 0], places[1, :, 0], rtol=1e-3)
    np.testing.assert_allclose(places[..., 1], places[:, :1, 1] + np.zeros((3, 3)), rtol=1e-3)


@pytest.mark.slow
def test_path_is_drawn_over_the_plume_of_its_episode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env, params = make("PlumeNavMeander-v0")
    paths = np.broadcast_to(np.array([60.0, 64.0]), (9, 2, 2))
    searched = SearchResults(np.array([True, False]), np.ones(2), paths)
    lengths = np.array([8, 3])
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    pictures.draw_evaluation("x", env, params, [Evaluation("a", 40, np.ones(2), lengths, searched)], tmp_path / "x.png")
    for axes, seed, steps in zip(drawn[0].axes, (40, 41), lengths, strict=False):
        session = Session(env, params)
        session.reset(seed=seed)
        for _ in range(steps):
            session.step(0)
        [image] = axes.get_images()
        state = jax.tree.map(jnp.asarray, session._engine.state())  # pyright: ignore
        expected = picture.paint_plume(env.scene(state, session.params)) / 255
        np.testing.assert_allclose(np.asarray(image.get_array()), expected, atol=1e-4)
        line, start = axes.get_lines()[:2]
        assert line.get_path_effects()  # an edge, so that it stands out from any colour of the plume
        assert len(line.get_xdata()) == steps + 1  # pyright: ignore[reportArgumentType]
        assert start.get_marker() == "o"


@pytest.mark.usefixtures("own")
def test_user_functions_as_policies() -> None:
    env, params = make("CartPole-v1")
    leaning: Any = resolve_policy("own_policies:upright", env, params)
    result = play("upright", LocalRunner(Session(env, params)), leaning, 0, 5)
    assert result.returns.mean() > 30  # better than chance
    counting: Any = resolve_policy("own_policies:Counting", env, params)
    once = play("counting", LocalRunner(Session(env, params)), counting, 4, 2)
    assert play("counting", LocalRunner(Session(env, params)), counting, 4, 2).returns.tolist() == once.returns.tolist()
    cut = evaluate("cut", env, params, leaning, 0, 2, max_steps=3)
    assert cut.lengths.tolist() == [3, 3]
    with pytest.raises(ValidationError, match="this environment or policy is not compiled"):
        evaluate("cut", env, params, leaning, 0, 2, devices="all")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["own_policies:drawing", "own_policies:Alternating"])
def test_pure_user_policies_act_the_same_in_a_session_and_compiled(name: str) -> None:
    env, params = make("CartPole-v1")
    policy: Any = resolve_policy(name, env, params)
    compiled = evaluate(name, env, params, policy, 5, 4)
    in_session = play(name, LocalRunner(Session(env, params)), policy, 5, 4)
    assert compiled.lengths.tolist() == in_session.lengths.tolist()


@pytest.mark.usefixtures("own")
def test_a_policy_for_a_host_environment_may_be_impure_and_receives_its_observations() -> None:
    env, params = make("Echo-v0")
    policy: Any = resolve_policy("own_policies:Parrot", env, params)
    played = evaluate("parrot", env, params, policy, 0, 2, max_steps=3)
    assert played.lengths.tolist() == [3, 3]
    assert policy.heard == ["", "0", "1", "", "0", "1"]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("own_policies:word", "a policy of one agent"),
        ("own_policies:nothing", "importable"),
        ("no_such_module:f", "importable"),
        ("no/such/folder", "random.*a folder of `tropism train`"),
        ("cast-and-surge", "random.*a folder of `tropism train`"),
        ("llm:model", "llm:MODEL@URL"),
        ("llm:model@host", "http://127"),
    ],
)
def test_invalid_policy_names_are_rejected(policy: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        resolve_policy(policy, *make("CartPole-v1"))


def test_strategies_find_odour_and_wind_in_the_observation() -> None:
    nose = Concat(
        (WindSense(egocentric=True, apparent=True, dt=0.04), Position(), Saturating(Concentration(), half=1.0))
    )
    flyer: Any = make_strategy("cast-and-surge", nose, Continuous())
    assert (flyer.smell, flyer.wind, flyer.apparent) == (4, (0, 1), True)
    walker: Any = make_strategy("cast-and-surge", Concat((Odour(), WindSense())), Cardinal())
    assert (walker.smell, walker.wind, walker.apparent, walker.threshold) == (0, (1, 2), False, 0.5)
    for name in NAMES[:3]:
        make_strategy(name, Concentration(), Cardinal())
    with pytest.raises(ValidationError, match="with a WindSense"):
        make_strategy("cast-and-surge", Concentration(), Cardinal())
    with pytest.raises(ValidationError, match="with an odour sensor"):
        make_strategy("klinotaxis", WindSense(), Cardinal())
    with pytest.raises(ValidationError, match="random-walk, klinotaxis"):
        make_strategy("sniffing", Concentration(), Cardinal())


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=50))
@settings(max_examples=50)
def test_intervals_contain_their_means(values: list[float]) -> None:
    interval = bootstrap_interval(np.array(values))
    assert interval is not None
    assert interval.low - 1e-9 <= interval.mean <= interval.high + 1e-9
    rate = wilson_interval(np.array(values) > 0)
    assert 0 <= rate.low <= rate.mean <= rate.high <= 1
    assert rate.low < rate.high  # never sure, also where all succeed


def test_bootstrap_interval_covers_the_mean_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(1)
    covered = [
        interval.low <= 3.0 <= interval.high
        for interval in (bootstrap_interval(rng.normal(3.0, 2.0, 60)) for _ in range(200))
        if interval is not None
    ]
    assert 0.90 <= np.mean(covered) <= 0.985
    assert bootstrap_interval(np.array([])) is None


class Model(BaseHTTPRequestHandler):
    """A language model with scripted replies."""

    said: list[Any]
    answers: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.said.append(body)
        answer = self.answers[min(len(self.said), len(self.answers)) - 1]
        status, reply = (500, {"error": "overheated"}) if answer == "FAIL" else (200, _completion(answer))
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing."""


def _completion(answer: str) -> Any:
    return {"choices": [{"message": {"role": "assistant", "content": answer}}]}


@pytest.fixture
def model() -> Iterator[tuple[str, type[Model]]]:
    kind = type("Rote", (Model,), {"said": [], "answers": ["left"]})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", kind
    server.shutdown()
    server.server_close()


def test_language_model_acts_by_text(model: tuple[str, type[Model]]) -> None:
    """In the first episode one reply is invalid; the second has only invalid replies and is abandoned."""
    url, kind = model
    kind.answers = ["and where would up lead me to", " left ", "right", "right", "right", "I would rather not"]
    options = ["--policy", f"llm:parrot@{url}", "--episodes", "2", "--steps", "4", "--json"]
    result = CliRunner().invoke(app, ["evaluate", "GridWorld-v0", *options])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["policies"][0]
    assert figures["steps"]["mean"] == (4 + 0) / 2
    first, second = kind.said[0]["messages"], kind.said[1]["messages"]
    assert (kind.said[0]["model"], kind.said[0]["seed"]) == ("parrot", 10_000)
    assert "right" in first[-1]["content"]  # it is told which actions there are
    assert second[-1]["content"].startswith("That was no action")
    assert len(kind.said) == 5 + 5


def test_context_starts_with_an_observation(model: tuple[str, type[Model]]) -> None:
    url, kind = model
    env, params = make("GridWorld-v0")
    model_policy, runner = LanguageModel("parrot", url), LocalRunner(Session(env, params))
    runner.reset(0)
    memory = model_policy.init(7)
    for _ in range(25):
        action, memory = model_policy.act(0, memory, runner.text())
        assert action == "left"
    assert {call["seed"] for call in kind.said} == {7}
    system, first, *_, last = kind.said[-1]["messages"]
    assert (system["role"], first["role"], last["role"]) == ("system", "user", "user")


def test_failing_language_model_raises_an_error(model: tuple[str, type[Model]]) -> None:
    url, kind = model
    kind.answers = ["FAIL"]
    env, params = make("GridWorld-v0")
    with pytest.raises(ServerError, match=r"replied with status 500.*overheated"):
        play("llm", LocalRunner(Session(env, params)), LanguageModel("parrot", url), 0, 1)
    with pytest.raises(ServerError, match="did not return a chat completion"):
        play("llm", LocalRunner(Session(env, params)), LanguageModel("parrot", "http://127.0.0.1:9/v1"), 0, 1)


@pytest.fixture(scope="module")
def two_agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    train(Training("CartPole-v1", {}, {}, PPOConfig(total_steps=2048), seed=0, seeds=2), folder)
    return folder


@pytest.mark.slow
def test_all_agents_of_a_folder_are_evaluated(two_agents: Path) -> None:
    assert expand_agents(str(two_agents)) == [f"{two_agents}@0", f"{two_agents}@1"]
    assert expand_agents(f"{two_agents}@1") == [f"{two_agents}@1"]
    env, params = make("CartPole-v1")
    agents: list[Any] = [resolve_policy(name, env, params) for name in expand_agents(str(two_agents))]
    assert not np.allclose(agents[0].agent.weights.policy.weight, agents[1].agent.weights.policy.weight)
    with pytest.raises(ValidationError, match="2 agents"):
        resolve_policy(f"{two_agents}@2", env, params)


@pytest.mark.slow
def test_agent_of_another_task_and_truncated_file_are_rejected(two_agents: Path, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="acts in"):
        resolve_policy(f"{two_agents}@0", *make("Acrobot-v1"))
    with pytest.raises(ValidationError, match=r"observes Box.*2.*, not Box"):
        resolve_policy(f"{two_agents}@0", frame_like(), frame_like().default_params())
    whole = (two_agents / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValidationError, match="a complete file"):
        resolve_policy(str(tmp_path), *make("CartPole-v1"))


def frame_like() -> PlumeNav:
    """An environment with two actions and two observed numbers."""
    return PlumeNav(sensor=WindSense(), motion=RunTumble())


@pytest.mark.parametrize(
    "options",
    [
        ["CartPole-v1", "--greedy"],
        ["http://127.0.0.1:9", "--param", "gravity=1", "--policy", "m:f"],
        ["http://127.0.0.1:9"],
        ["CartPole-v1", "--env", "CartPole-v1"],
    ],
)
def test_inapplicable_options_are_rejected(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["evaluate", *options])
    assert isinstance(result.exception, ValidationError)


@pytest.mark.usefixtures("own")
def test_served_user_environment_works_with_policies_that_need_spaces() -> None:
    env, params = make("GridWorld-v0", size=3)
    own = {"Mine": ServedEnvironment("Mine", env, params, "A grid of my own.")}
    with running(own=own) as server:
        command = ["evaluate", f"{server.url}/envs/Mine", "--episodes", "2", "--json"]
        result = CliRunner().invoke(app, [*command, "--env", "GridWorld-v0"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["policies"][0]["episodes"] == 2
        result = CliRunner().invoke(app, command)
        assert isinstance(result.exception, ValidationError)
        assert "--env" in str(result.exception)


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_evaluate_command_writes_a_table_json_and_a_plot(tmp_path: Path) -> None:
    options = ["--episodes", "16", "--param", "max_steps=30", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["evaluate", "PlumeNavMeander-v0", "--policy", "cast-and-surge", *options])
    assert result.exit_code == 0, result.output
    assert "found the" in result.stdout
    figures = json.loads((tmp_path / "out" / "evaluation.json").read_text())["policies"]
    assert figures[0]["success"]["low"] <= figures[0]["success"]["mean"] <= figures[0]["success"]["high"]
    assert (tmp_path / "out" / "evaluation.png").read_bytes().startswith(b"\x89PNG")


def test_time_summaries_cover_successful_episodes_only() -> None:
    found, paths = np.array([True, False, True]), np.zeros((2, 3, 2))
    search = SearchResults(found, np.array([0.5, 0.1, 0.7]), paths)
    summary = Evaluation("x", 0, np.array([1.0, 0.0, 1.0]), np.array([10, 99, 20]), search).summary()
    assert summary["time_to_find"].mean == 15
    assert summary["path_efficiency"].mean == pytest.approx(0.6)
    assert summary["success"].mean == pytest.approx(2 / 3)
    lost = Evaluation("x", 0, np.zeros(3), np.ones(3), search._replace(found=~found & False)).summary()
    assert lost["time_to_find"] is None
    assert lost["success"].mean == 0


class Rightwards:
    """Up twice, then right."""

    def init(self, key: Any) -> Any:
        return jnp.int32(0)

    def act(self, key: Any, memory: Any, obs: Any) -> Any:
        return jnp.where(memory < 2, 0, 1), memory + 1


def test_search_figures_against_a_known_path() -> None:
    """From (40, 64) to within 5 of (64, 64) are 19 steps; two steps up make it 22 to within 5 of the source."""
    env = PlumeNav(sensor=Concat((Odour(0.5), WindSense())), max_steps=30).with_parts(
        start=Start(fixed=1, point=(40.0, 64.0))
    )
    result = evaluate("right", env, env.default_params(), Rightwards(), 0, 3)
    search = result.search
    assert search is not None
    assert search.shortest is not None
    assert search.on_odour is not None
    steps = 2 + math.ceil(24 - math.sqrt(25 - 4))
    assert result.lengths.tolist() == [steps] * 3
    assert search.shortest.tolist() == [19] * 3
    path = np.array([(40, 65), (40, 66), *((x, 66) for x in range(41, 39 + steps))])
    smells = np.exp(-((path[:, 0] - 64) ** 2 + (path[:, 1] - 64) ** 2) / 800) >= 0.5
    np.testing.assert_allclose(search.on_odour, smells.mean(), rtol=1e-6)
    figures = result.summary()
    assert figures["time_efficiency"].mean == pytest.approx(19 / steps)
    assert [row["from"] for row in figures["success_by_distance"]] == [24.0] * 3
    assert figures["survival"]["steps"][-1] == steps
    assert figures["survival"]["searching"][-2:] == [1.0, 0.0]


def test_success_by_distance_and_survival_count_episodes() -> None:
    distance = np.arange(12.0)
    found = distance < 5
    search = SearchResults(found, np.ones(12), np.zeros((1, 12, 2)), start_distance=distance)
    rates = [row["mean"] for row in success_by_distance(search)]
    assert rates == [1, 1, 0.5, 0, 0, 0]
    evaluation = Evaluation("a", 0, np.ones(12), np.arange(1, 13), search)
    steps, searching = evaluation.survival(13)
    np.testing.assert_allclose(searching, 1 - np.minimum(steps, 5) / 12)
    assert "time_efficiency" not in evaluation.summary()


def test_batches_join_all_columns_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    env = PlumeNav(max_steps=5)
    policy: Any = resolve_policy("random", env, env.default_params())
    whole = evaluate("random", env, env.default_params(), policy, 0, 7)
    monkeypatch.setattr("tropism.train.evaluation.MAX_BATCH", 3)
    parts = evaluate("random", env, env.default_params(), policy, 0, 7)
    assert whole.search is not None
    assert parts.search is not None
    for one, other in zip(whole.search, parts.search, strict=True):
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one, other)
