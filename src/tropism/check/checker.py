"""check_environment: checks every law in order, each only if the laws it depends on hold."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tropism.check import compilation, determinism, flags, interface, session_laws
from tropism.check.context import CheckContext
from tropism.check.finding import Finding, attempt
from tropism.check.report import Report, Result
from tropism.core.adapters.class_based import as_environment, name_of
from tropism.core.episode import check_seed
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError


class Law(NamedTuple):
    """A law is checked only if the laws it depends on hold, so that one fault is reported once."""

    name: str
    statement: str
    check: Callable[[CheckContext], Finding | None]
    depends_on: tuple[str, ...] = ()
    for_host: bool = True
    needs_seed: bool = False  # compares two runs of one seed


COMPILED = ("scan", "vmap", "params")

LAWS = (
    Law(
        "interface",
        "the methods return the declared types, and copies of the environment are equal",
        interface.check_interface,
    ),
    Law(
        "spaces",
        "spaces are constant and contain their samples and the observations",
        interface.check_spaces,
        ("interface",),
    ),
    Law(
        "flags",
        "rewards, flags and info have the right types, and done is terminated or truncated",
        flags.check_flags,
        ("interface",),
    ),
    Law("finite-rewards", "every reward is a finite number", interface.check_finite_rewards, ("spaces", "flags")),
    Law("purity", "reset and step do not change their inputs", interface.check_purity, ("spaces", "flags")),
    Law(
        "same-seed",
        "the same seed and actions give the same episode",
        determinism.check_same_seed,
        ("purity",),
        needs_seed=True,
    ),
    Law(
        "global-state",
        "an episode depends only on its arguments, not on global state",
        determinism.check_global_state,
        ("same-seed",),
        needs_seed=True,
    ),
    Law("jit", "compiled calls equal plain calls", compilation.check_jit, ("global-state",), for_host=False),
    Law("scan", "a scan equals a loop", compilation.check_scan, ("jit",), for_host=False),
    Law("vmap", "a batch equals its members one by one", compilation.check_vmap, ("scan",), for_host=False),
    Law(
        "params",
        "params can be vmapped, and a new value does not recompile",
        compilation.check_params,
        ("vmap",),
        for_host=False,
    ),
    Law("termination", "at least one random episode ends", flags.check_termination, ("global-state", *COMPILED)),
    Law(
        "episodes",
        "an episode does not affect the next one",
        determinism.check_episodes,
        ("global-state", *COMPILED),
        needs_seed=True,
    ),
    Law(
        "instances",
        "two environments or sessions do not affect each other",
        determinism.check_instances,
        ("episodes",),
        needs_seed=True,
    ),
    Law(
        "immutability",
        "a returned observation never changes",
        session_laws.check_immutability,
        ("episodes",),
        needs_seed=True,
    ),
    Law(
        "snapshot",
        "snapshot, restore and fork continue identically",
        session_laws.check_snapshot,
        ("instances", "immutability"),
        needs_seed=True,
    ),
    Law(
        "render",
        "render returns (H, W, 3) uint8 or None and changes nothing",
        session_laws.check_render,
        ("episodes",),
        needs_seed=True,
    ),
    Law(
        "words",
        "describe returns text; parse reads actions and rejects other text",
        session_laws.check_words,
        ("episodes",),
    ),
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
    """Check an environment against every law; a broken law is reported, never raised.

    `env` is an Environment, or the pair that `make` returns; `params` are its params or a dict of those
    that differ. Random episodes of up to `num_steps` steps are drawn from `seed`. `laws` names the laws to
    check, by default all; those they depend on are checked too. `progress` is called before each law and after
    the last with the law's name, the number checked so far, and the total.
    """
    length, chosen = check_count("num_steps", num_steps), _choose(laws)
    if isinstance(env, tuple) and len(env) == 2 and params is None:
        env, params = env
    name = name_of(env)
    try:
        env = as_environment(env)
    except ValidationError as error:
        return Report(name, (Result(LAWS[0].name, LAWS[0].statement, "failed", "env", str(error)),))
    context = CheckContext(env, params, check_seed(seed), length)
    results: dict[str, Result] = {}
    for number, law in enumerate(chosen):
        if progress is not None:
            progress(law.name, number, len(chosen))
        results[law.name] = _check_law(law, context, results)
    if progress is not None:
        progress(chosen[-1].name, len(chosen), len(chosen))
    return Report(name, tuple(results.values()))


def _choose(names: Iterable[str] | None) -> list[Law]:
    """The laws with these names and those they depend on, in order."""
    if names is None:
        return list(LAWS)
    pending = [names] if isinstance(names, str) else list(names)
    known = {law.name: law for law in LAWS}
    unknown = [name for name in pending if name not in known]
    if unknown or not pending:
        raise ValidationError("laws", unknown[0] if unknown else names, f"names among {', '.join(known)}")
    chosen: set[str] = set()
    while pending:
        name = pending.pop()
        chosen.add(name)
        pending += known[name].depends_on
    return [law for law in LAWS if law.name in chosen]


def _check_law(law: Law, context: CheckContext, results: dict[str, Result]) -> Result:
    reason = _skip_reason(law, context, results)
    if reason is not None:
        return Result(law.name, law.statement, "skipped", "", reason)
    finding = attempt(lambda: law.check(context))
    if finding is None:
        return Result(law.name, law.statement, "passed")
    if finding.status == "skipped":
        return Result(law.name, law.statement, "skipped", finding.place, finding.message)
    message = f"{law.name} {finding.status} in {finding.place}: {finding.message}"
    return Result(law.name, law.statement, finding.status, finding.place, message)


def _skip_reason(law: Law, context: CheckContext, results: dict[str, Result]) -> str | None:
    """Why a law is not checked: one that it depends on failed, directly or indirectly, or it does not apply."""
    for name in law.depends_on:
        required = results[name]
        if required.status == "failed":
            return f"depends on {name}, which failed"
        if required.status == "skipped" and required.message.startswith("depends on"):
            return required.message
    if not law.for_host and not context.pure:
        return "host environment"
    return "its resets take no seed" if law.needs_seed and not context.env.traits.seedable else None
