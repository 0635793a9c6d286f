"""The command demo: an agent learns to find a smell, and is compared with the classic strategies."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, TaskID

from tropism import __version__
from tropism.cli.evaluate import figures, print_evaluations
from tropism.cli.interrupts import interruptible
from tropism.cli.terminal import Seed, console, errors, made_folder, progress_bar
from tropism.errors import ValidationError

ID = "PlumeNavMeander-v0"
RIVALS = ("random", "run-and-tumble", "cast-and-surge")
EPISODES = 512
UNSEEN = 10_000  # the first seed of the episodes that all are compared on
NEXT = f"""tropism evaluate {ID} --policy klinotaxis  # any policy, any environment
tropism train PlumeNavPuffs-v0 --seeds 4                 # another plume
tropism serve                                            # play it yourself, in a browser
tropism list                                             # everything else"""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the agent, the pictures and report.html go.")] = Path(
        "runs/demo"
    ),
    seed: Seed = 0,
    steps: Annotated[int, typer.Option(help="Steps of training at most.", min=10_000)] = 1_500_000,
) -> None:
    """Train an agent with a memory to find a smell until it beats the classic strategies, in one to two minutes.

    Example: tropism demo --out runs/demo

    Ctrl-C stops it and leaves what there is. The exit code is 1 where the agent does not beat them in --steps.
    """
    begun, show = time.perf_counter(), _Show(made_folder(out), seed, steps)
    errors.print("The demo takes one to two minutes on two cores.", highlight=False)

    def left() -> str:
        for part in out.glob("*.part*"):
            part.unlink(missing_ok=True)
        show.report("The demo was interrupted; this is the state at that time.")
        return f"What there is so far is in {out}/: open report.html."

    with interruptible(left), progress_bar() as bar:
        won = show.run(bar)
    print_evaluations(show.evaluations)
    console.print(
        f"{time.perf_counter() - begun:.0f} seconds. Open [bold]{escape(str(out))}/report.html[/] for the pictures. "
        f"Then:\n{escape(NEXT)}",
        highlight=False,
        soft_wrap=True,
    )
    if not won:
        console.print(
            f"The agent did not beat the strategies in {steps:,} steps: give it more, or another --seed.",
            soft_wrap=True,
        )
        raise typer.Exit(1)


class _Show:
    """The demo, part by part; what is done so far can be reported at any time."""

    def __init__(self, out: Path, seed: int, steps: int):
        from tropism.core.registry import make
        from tropism.train.checkpoint import Training
        from tropism.train.config import Config
        from tropism.train.presets import PRESETS
        from tropism.train.run import CHECKPOINT

        self.out = out
        self.env, self.params = make(ID)
        numbers: dict[str, Any] = PRESETS[ID] | {"total_steps": steps}
        self.recipe = Training(ID, {}, {}, Config(**numbers), seed, 1)
        self.evaluations: list[Any] = []
        self.history: list[Any] = []
        if (out / CHECKPOINT).exists() and not (out / "report.html").exists():
            raise ValidationError("out", str(out), "a folder without an agent that is not the demo's")
        for pattern in ("agent.gif", "evaluation*.png", "found*.png", "curve*.png", "evaluation.json", "report.html"):
            for file in out.glob(pattern):
                file.unlink()  # a report shows nothing of another run

    def run(self, bar: Progress) -> bool:
        """Whether the agent beat the strategies, on episodes that it was not chosen by."""
        tasks = [bar.add_task(name, total=None) for name in ("strategies", "training", "pictures")]
        for name in bar.track(RIVALS, task_id=tasks[0]):
            self.evaluations.append(self._evaluate(name, EPISODES))
        self._train(bar, tasks[1])
        self.evaluations.append(self._evaluate(str(self.out), EPISODES, "trained agent"))
        for draw in bar.track((self._draw, self._film, self.report), task_id=tasks[2]):
            draw()
        *rivals, agent = (each.search.success for each in self.evaluations)
        return agent.low > max(rival.high for rival in rivals)

    def _evaluate(self, name: str, episodes: int, label: str | None = None, seed: int = UNSEEN) -> Any:
        from tropism.train.evaluate import evaluate
        from tropism.train.policies import named

        strategy: Any = named(name, self.env, self.params)
        return evaluate(label or name, self.env, self.params, strategy, seed, episodes)

    def _train(self, bar: Progress, task: TaskID) -> None:
        """Until the agent finds the source more often than the best rival, beyond doubt."""
        from tropism.train.run import training

        best = max(each.search.success.high for each in self.evaluations)
        bar.update(task, description="training: compiling")
        for number, (report, _) in enumerate(training(self.recipe, self.out)):
            self.history.append([report.steps, report.returns])
            mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.2f}"
            speed = f"{report.steps_per_second / 1e3:.0f} k steps/s"
            bar.update(task, completed=report.steps, total=report.total_steps, description=f"training: {mean}, {speed}")
            if number % 5 == 4 and self._evaluate(str(self.out), 256, seed=0).search.success.low > best:
                bar.update(task, total=report.steps, description=f"training: beats them after {report.steps:,} steps")
                return

    def _draw(self) -> None:
        from tropism.train import pictures

        (self.out / "evaluation.json").write_text(json.dumps(figures(ID, self.evaluations), indent=2) + "\n")
        for name, draw in {
            "curve.png": lambda path: pictures.learning_curve(ID, self.history, path),
            "evaluation.png": lambda path: pictures.evaluation(ID, self.env, self.params, self.evaluations, path),
            "found.png": lambda path: pictures.found_in_time(self.evaluations, path),
        }.items():
            pictures.draw_both(draw, self.out / name)

    def _film(self) -> None:
        """The longest of its first searches that succeeded."""
        from tropism.core.registry import make
        from tropism.core.session.session import Session
        from tropism.record import film
        from tropism.train.policies import Solo, named
        from tropism.train.runner import Here

        agent = self.evaluations[-1]
        lengths = agent.lengths[:50] * agent.search.found[:50]
        session = Session(*make(ID, trail=150))
        strategy: Any = named(str(self.out), self.env, self.params)
        player = Solo(strategy)
        seed = UNSEEN + int(lengths.argmax())
        player.begin(seed)
        pictures = film.frames(session, lambda session: player.act(Here(session).now()), 150, seed)
        film.save(self.out / "agent.gif", pictures)

    def report(self, lead: str | None = None) -> None:
        from tropism.train.report import Shown, write

        summary = "A recurrent agent learnt to find the source of a meandering plume by smell and wind alone."
        paths = (
            "Paths of each policy in the same three episodes, each over the plume as that episode ended "
            "(white: found, orange: not found; the dot is the start, the ring the goal), and success by start."
        )
        pictures = [
            Shown(self.out / "agent.gif", "One search of the trained agent."),
            Shown(self.out / "evaluation.png", paths, wide=True),
            Shown(self.out / "found.png", "The share of episodes that have found the source, by step."),
            Shown(self.out / "curve.png", "The return of an episode during training."),
        ]
        title, lead = "Finding a smell", lead or summary
        write(self.out / "report.html", title, lead, self.evaluations, pictures, self._facts(), NEXT)

    def _facts(self) -> dict[str, str]:
        """How the figures were made."""
        import jax

        config, last = self.recipe.config, UNSEEN + EPISODES - 1
        trained = self.history[-1][0] if self.history else 0
        return {
            "version": f"Tropism {__version__}, JAX {jax.__version__}",
            "task": f"{ID}, source within {float(self.params.goal_radius):g}, {int(self.params.max_steps)} steps",
            "training": f"PPO, seed {self.recipe.seed}, {trained:,} steps in {config.num_envs} environments; stopped "
            "when the agent beat the best strategy beyond doubt on episodes 0 to 255",
            "evaluation": f"{EPISODES} episodes that training did not see: seeds {UNSEEN} to {last}",
        }
