"""check_environment: checks every law in order, each only if the laws it depends on hold."""

from collections.abc import Callable, Iterable
from typing import Any

from tropism.check import compilation, determinism, flags, interface, session_laws, spaces
from tropism.check.context import CheckContext
from tropism.check.law import Law
from tropism.check.law_error import attempt
from tropism.check.report import Report, Result
from tropism.core.adapters.class_based import name_of
from tropism.core.episode import check_seed
from tropism.core.spaces.space import check_count
from tropism.errors import ValidationError

LAWS: tuple[Law, ...] = (
    interface.check_interface,
    spaces.check_spaces,
    flags.check_flags,
    flags.check_finite_rewards,
    determinism.check_purity,
    determinism.check_same_seed,
    determinism.check_global_state,
    compilation.check_jit,
    compilation.check_scan,
    compilation.check_vmap,
    compilation.check_params,
    flags.check_termination,
    determinism.check_episodes,
    determinism.check_instances,
    session_laws.check_immutability,
    session_laws.check_snapshot,
    session_laws.check_render,
    session_laws.check_words,
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
    context = CheckContext(env, params, check_seed(seed), length)
    results: dict[str, Result] = {}
    for number, law in enumerate(chosen):
        if progress is not None:
            progress(law.name, number, len(chosen))
        results[law.name] = _check_law(law, context, results)
    if progress is not None:
        progress(chosen[-1].name, len(chosen), len(chosen))
    return Report(name_of(env), tuple(results.values()))


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
    reason = _failed_dependency(law, results) or law.skip_reason(context)
    if reason is not None:
        return Result(law.name, law.statement, "skipped", "", reason)
    failure = attempt(lambda: law.check(context))
    if failure is None:
        return Result(law.name, law.statement, "passed")
    message = f"{law.name} {failure.status} in {failure.place}: {failure.message}"
    return Result(law.name, law.statement, failure.status, failure.place, message)


def _failed_dependency(law: Law, results: dict[str, Result]) -> str | None:
    """The law that failed, if this one depends on it, directly or indirectly."""
    for required in (results[name] for name in law.depends_on):
        if required.status == "failed":
            return f"depends on {required.law}, which failed"
        if required.status == "skipped" and required.message.startswith("depends on"):
            return required.message
    return None
