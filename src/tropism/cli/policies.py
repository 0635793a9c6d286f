"""Policies of `tropism record` and `tropism render`: those of `tropism evaluate` that observe arrays."""

from typing import Any

from tropism.errors import MissingExtraError, ValidationError

NO_TEXT = (
    "a policy that observes arrays; a server records the episodes of a language model "
    "(`tropism serve ID --record DIR`, then `tropism evaluate URL --policy llm:MODEL@URL`)"
)


def policy_of(name: str, session: Any, greedy: bool) -> Any:
    """The policy of this name for a session, as a SteppedPolicy."""
    from tropism.core.rollout.stepped import SteppedPolicy

    return SteppedPolicy(find_policy(name, session, greedy), session.env.pure)


def find_policy(name: str, session: Any, greedy: bool) -> Any:
    """The policy of this name for a session; only trained agents need an extra."""
    from tropism.core.rollout.named import named_policy

    if name.startswith("llm:"):
        raise ValidationError("policy", name, NO_TEXT)
    return named_policy(name, session.env, session.params) or _trained_policy(name, session, greedy)


def _trained_policy(name: str, session: Any, greedy: bool) -> Any:
    try:
        from tropism.train.policies import resolve_policy
    except ImportError as missing:
        command = 'pip install "tropism[train,client]"'
        message = f"the policy {name} needs more than is installed ({missing}): {command}"
        raise MissingExtraError("policy", name, command, message) from missing
    return resolve_policy(name, session.env, session.params, greedy)
