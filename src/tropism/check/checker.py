"""check_environment: every law in order, each only where those it rests on hold."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tropism.check import compilation as tracing
from tropism.check import determinism as repeating
from tropism.check import flags
from tropism.check import interface as values
from tropism.check import session_laws as living
from tropism.check.context import Subject
from tropism.check.finding import Finding, attempt
from tropism.check.report import Report, Result
from tropism.core.adapters.class_based import as_environment, name_of
from tropism.core.episode import check_seed
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError


class Law(NamedTuple):
    """A law is checked only if no law it rests on is broken, so that one fault is reported once."""

    name: str
    statement: str
    check: Callable[[Subject], Finding | None]
    rests_on: tuple[str, ...] = ()
    for_host: bool = True
    repeats: bool = False  # compares two runs of one seed


COMPILED = ("scan", "vmap", "params")

LAWS = (
    Law("interface", "the methods return what they should, equal environments are equal", values.check_interface),
    Law(
        "spaces",
        "spaces stay the same, contain their samples and the observations",
        values.check_spaces,
        ("interface",),
    ),
    Law(
        "flags",
        "rewards, flags and info have the right types, and done is terminated or truncated",
        flags.check_flags,
        ("interface",),
    ),
    Law("finite-rewards", "every reward is a finite number", values.check_finite_rewards, ("spaces", "flags")),
    Law("purity", "reset and step leave their inputs as they were", values.check_purity, ("spaces", "flags")),
    Law(
        "same-seed",
        "the same seed and actions give the same episode",
        repeating.check_same_seed,
        ("purity",),
        repeats=True,
    ),
    Law(
        "global-state",
        "an episode depends on its arguments, on nothing else in the process",
        repeating.check_global_state,
        ("same-seed",),
        repeats=True,
    ),
    Law("jit", "compiled calls give what plain calls give", tracing.check_jit, ("global-state",), for_host=False),
    Law("scan", "a scan gives what a loop gives", tracing.check_scan, ("jit",), for_host=False),
    Law("vmap", "a batch gives what its members give one by one", tracing.check_vmap, ("scan",), for_host=False),
    Law(
        "params", "params vmap, and a new value does not compile again", tracing.check_params, ("vmap",), for_host=False
    ),
    Law("termination", "some episode ends", flags.check_termination, ("global-state", *COMPILED)),
    Law(
        "episodes",
        "an episode leaves nothing behind for the next one",
        repeating.check_episodes,
        ("global-state", *COMPILED),
        repeats=True,
    ),
    Law(
        "instances", "two environments or sessions do not touch", repeating.check_instances, ("episodes",), repeats=True
    ),
    Law(
        "immutability",
        "an observation once returned never changes",
        living.check_immutability,
        ("episodes",),
        repeats=True,
    ),
    Law(
        "snapshot",
        "snapshot, restore and fork continue identically",
        living.check_snapshot,
        ("instances", "immutability"),
        repeats=True,
    ),
    Law(
        "render",
        "a picture is (H, W, 3) uint8 or None and changes nothing",
        living.check_render,
        ("episodes",),
        repeats=True,
    ),
    Law("words", "describe speaks, and parse reads actions and refuses nonsense", living.check_words, ("episodes",)),
)


def check_environment(
    env: Any,
    params: Any = None,
    *,
    seed: int = 0,
    num_steps: int = 200,
    laws: Iterable[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Check an environment against every law and report; a broken environment is never an exception.

    `env` is an Environment, or the pair that `make` returns; `params` are its params or a dict of those
    that differ. Random episodes of up to `num_steps` steps are drawn from `seed`. `laws` names the laws to
    check, by default all; those they rest on are checked too. `progress` is called before each law with its
    name, how many have been checked, and how many there are; and after the last.
    """
    length, chosen = check_count("num_steps", num_steps), _choose(laws)
    if isinstance(env, tuple) and len(env) == 2 and params is None:
        env, params = env
    name = name_of(env)
    try:
        env = as_environment(env)
    except ValidationError as error:
        return Report(name, (Result(LAWS[0].name, LAWS[0].statement, "failed", "env", str(error)),))
    subject = Subject(env, params, check_seed(seed), length)
    results: dict[str, Result] = {}
    for number, law in enumerate(chosen):
        if progress is not None:
            progress(law.name, number, len(chosen))
        results[law.name] = _judge(law, subject, results)
    if progress is not None:
        progress(chosen[-1].name, len(chosen), len(chosen))
    return Report(name, tuple(results.values()))


def _choose(names: Iterable[str] | None) -> list[Law]:
    """The laws of these names, and those they rest on, in order."""
    if names is None:
        return list(LAWS)
    wanted = [names] if isinstance(names, str) else list(names)
    known = {law.name: law for law in LAWS}
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValidationError("laws", unknown[0] if unknown else names, f"names among {', '.join(known)}")
    chosen: set[str] = set()
    while wanted:
        name = wanted.pop()
        chosen.add(name)
        wanted += known[name].rests_on
    return [law for law in LAWS if law.name in chosen]


def _judge(law: Law, subject: Subject, results: dict[str, Result]) -> Result:
    obstacle = _obstacle(law, subject, results)
    if obstacle is not None:
        return Result(law.name, law.statement, "skipped", "", obstacle)
    finding = attempt(lambda: law.check(subject))
    if finding is None:
        return Result(law.name, law.statement, "passed")
    if finding.status == "skipped":
        return Result(law.name, law.statement, "skipped", finding.place, finding.message)
    message = f"{law.name} {finding.status} in {finding.place}: {finding.message}"
    return Result(law.name, law.statement, finding.status, finding.place, message)


def _obstacle(law: Law, subject: Subject, results: dict[str, Result]) -> str | None:
    """Why a law cannot be judged: a law under it is broken, or could itself not be judged for that."""
    for name in law.rests_on:
        below = results[name]
        if below.status == "failed":
            return f"rests on {name}, which failed"
        if below.status == "skipped" and below.message.startswith("rests on"):
            return below.message
    if not law.for_host and not subject.traced:
        return "host environment"
    return "its resets take no seed" if law.repeats and not subject.env.seedable else None
