"""The command demo: train an agent to find an odour source, and compare it with classic strategies."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, TaskID

from tropism import __version__
from tropism.cli.evaluate import print_evaluations, to_json
from tropism.cli.interrupts import interruptible
from tropism.cli.terminal import Seed, errors, make_folder, print_text, progress_bar
from tropism.errors import ValidationError

ID, ARGUMENTS = "PlumeNavPuffs-v0", {"difficulty": "sparse"}
BASELINES = ("random", "counter-turning", "cast-and-surge")
EPISODES = 512
EVALUATION_SEED = 10_000  # first seed of the evaluation episodes, which training does not use
NEXT = f"""tropism evaluate {ID} --policy run-and-tumble  # any policy, any environment
tropism train PlumeNavMeander-v0 --seeds 4               # another plume
tropism serve                                            # play it yourself, in a browser
tropism list                                             # everything else"""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the agent, the plots and report.html.")] = Path(
        "runs/demo"
    ),
    seed: Seed = 0,
    steps: Annotated[int, typer.Option(help="Maximum training steps.", min=20_000)] = 2_000_000,
) -> None:
    """Train a recurrent agent to find an odour source until it beats classic strategies, in one to two minutes.

    Example: tropism demo --out runs/demo

    Ctrl-C stops it and keeps the results so far. The exit code is 1 if the agent does not beat them within --steps.
    """
    start, run = time.perf_counter(), _Demo(make_folder(out), seed, steps)
    print_text("The demo takes one to two minutes on two cores.", errors)

    def message() -> str:
        for part in out.glob("*.part*"):
            part.unlink(missing_ok=True)
        run.write_report("The demo was interrupted; these are the results so far.")
        return f"Results so far are in {out}/: open report.html."

    with interruptible(message), progress_bar() as bar:
        won = run.run(bar)
    print_evaluations(run.evaluations)
    seconds = time.perf_counter() - start
    print_text(f"{seconds:.0f} seconds. Open {out}/report.html for the plots. Then:\n{NEXT}")
    if not won:
        print_text(
            f"The agent did not beat the strategies in {steps:,} steps: increase --steps, or try another --seed."
        )
        raise typer.Exit(1)


class _Demo:
    """The parts of the demo; a report of the results so far can be written at any time."""

    def __init__(self, out: Path, seed: int, steps: int):
        from tropism.core.registry import make, presets
        from tropism.train.ppo import PPOConfig
        from tropism.train.run import CHECKPOINT
        from tropism.train.training import Training

        self.out = out
        self.env, self.params = make(ID, **ARGUMENTS)
        numbers: dict[str, Any] = presets("ppo")[ID] | {"total_steps": steps}
        self.training = Training(ID, ARGUMENTS, {}, PPOConfig(**numbers), seed, 1)
        self.evaluations: list[Any] = []
        self.history: list[Any] = []
        if (out / CHECKPOINT).exists() and not (out / "report.html").exists():
            raise ValidationError("out", str(out), "a folder without an agent of another training")
        for pattern in ("agent.gif", "evaluation*.png", "found*.png", "curve*.png", "evaluation.json", "report.html"):
            for file in out.glob(pattern):
                file.unlink()  # the report must not show results of another run

    def run(self, bar: Progress) -> bool:
        """Whether the agent beat the strategies on the evaluation episodes."""
        tasks = [bar.add_task(name, total=None) for name in ("strategies", "training", "plots")]
        for name in bar.track(BASELINES, task_id=tasks[0]):
            self.evaluations.append(self._evaluate(name, EPISODES))
        self._train(bar, tasks[1])
        self.evaluations.append(self._evaluate(str(self.out), EPISODES, "trained agent"))
        for draw in bar.track((self._draw, self._film, self.write_report), task_id=tasks[2]):
            draw()
        *baselines, agent = (each.search.success for each in self.evaluations)
        return agent.low > max(baseline.high for baseline in baselines)

    def _evaluate(self, name: str, episodes: int, label: str | None = None, seed: int = EVALUATION_SEED) -> Any:
        from tropism.train.evaluation import evaluate
        from tropism.train.policies import resolve_policy

        strategy: Any = resolve_policy(name, self.env, self.params)
        return evaluate(label or name, self.env, self.params, strategy, seed, episodes)

    def _train(self, bar: Progress, task: TaskID) -> None:
        """Train until the agent's success interval is above that of the best baseline."""
        from tropism.train.run import train_in_chunks

        best = max(each.search.success.high for each in self.evaluations)
        bar.update(task, description="training: compiling")
        for number, (report, _) in enumerate(train_in_chunks(self.training, self.out)):
            self.history.append([report.steps, report.returns])
            mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.2f}"
            speed = f"{report.steps_per_second / 1e3:.0f} k steps/s"
            bar.update(task, completed=report.steps, total=report.total_steps, description=f"training: {mean}, {speed}")
            if number % 5 == 4 and self._evaluate(str(self.out), 256, seed=0).search.success.low > best:
                bar.update(task, total=report.steps, description=f"training: beats them after {report.steps:,} steps")
                return

    def _draw(self) -> None:
        from tropism.drawing import plots
        from tropism.train import pictures

        (self.out / "evaluation.json").write_text(json.dumps(to_json(ID, self.evaluations), indent=2) + "\n")
        for name, draw in {
            "curve.png": lambda path: plots.draw_learning_curve(ID, self.history, path),
            "evaluation.png": lambda path: pictures.draw_evaluation(ID, self.env, self.params, self.evaluations, path),
            "found.png": lambda path: pictures.draw_success_over_time(self.evaluations, path),
        }.items():
            plots.draw_light_and_dark(draw, self.out / name)

    def _film(self) -> None:
        """Film the longest successful search among the first 50 episodes."""
        from tropism.cli.policies import policy_of
        from tropism.core.registry import make
        from tropism.core.session.session import Session
        from tropism.record import film

        agent = self.evaluations[-1]
        lengths = agent.lengths[:50] * agent.search.found[:50]
        session = Session(*make(ID, trail=300, **ARGUMENTS))
        policy = policy_of(str(self.out), session, greedy=False)
        seed = EVALUATION_SEED + int(lengths.argmax())
        policy.reset(seed)
        episode = film.play(session, lambda session: policy.act(session.timestep.obs), 300, seed)
        film.save(self.out / "agent.gif", map(film.render_frame, episode))

    def write_report(self, lead: str | None = None) -> None:
        from tropism.train.report import ReportImage, write_report

        summary = (
            "A recurrent agent learned to find the source of a plume of few, scattered puffs by odour and wind alone."
        )
        paths = (
            "Paths of each policy in the same three episodes, each over the plume at the end of that episode "
            "(white: found, orange: not found; the dot is the start, the ring the goal), and success by start."
        )
        images = [
            ReportImage(self.out / "agent.gif", "One search of the trained agent."),
            ReportImage(self.out / "evaluation.png", paths, wide=True),
            ReportImage(self.out / "found.png", "The share of episodes that have found the source, by step."),
            ReportImage(self.out / "curve.png", "The return of an episode during training."),
        ]
        title, lead = "Finding an odour source", lead or summary
        write_report(self.out / "report.html", title, lead, self.evaluations, images, self._facts(), NEXT)

    def _facts(self) -> dict[str, str]:
        """How the numbers were obtained."""
        import jax

        config, last = self.training.config, EVALUATION_SEED + EPISODES - 1
        trained = self.history[-1][0] if self.history else 0
        return {
            "version": f"Tropism {__version__}, JAX {jax.__version__}",
            "task": f"{ID}, {ARGUMENTS['difficulty']}: few puffs; source within "
            f"{float(self.params.goal_radius):g} m, {int(self.params.max_steps)} steps at 25 Hz",
            "training": f"PPO, seed {self.training.seed}, {trained:,} steps in {config.num_envs} environments; stopped "
            "when the agent's success interval on episodes 0 to 255 was above that of the best strategy",
            "evaluation": f"{EPISODES} episodes not used in training: seeds {EVALUATION_SEED} to {last}",
        }
