"""Policies by name: trained agents, language models, and those of `named_policy`."""

from pathlib import Path
from typing import Any

from tropism.core.environment import Environment
from tropism.core.rollout.named import is_user_policy, named_policy, user_policy
from tropism.core.rollout.policy import Policy
from tropism.core.spaces import Space
from tropism.core.spaces.composite import leaf_spaces
from tropism.errors import ValidationError
from tropism.train import checkpoint
from tropism.train.language_model import LanguageModel
from tropism.train.run import CHECKPOINT

AGENTS = Path(__file__).parent / "agents"  # trained agents that come with the package
SUFFIX = ".tropism"

STANDALONE_FORMS = (
    "module:function or llm:MODEL@URL; other policies need --env, or a URL with /envs/ID of an id registered here"
)


def resolve_policy(name: str, env: Environment, params: Any, greedy: bool = False) -> Policy:
    """The policy of this name for an environment; `greedy` applies to trained agents."""
    policy = named_policy(name, env, params)
    if policy is not None:
        return policy
    return _language_model(name) if name.startswith("llm:") else _load_trained(name, env, params, greedy)


def resolve_standalone(name: str) -> Policy:
    """A policy that is created without an environment, so that it also works with an unknown server."""
    if name.startswith("llm:"):
        return _language_model(name)
    if not is_user_policy(name):
        raise ValidationError("policy", name, STANDALONE_FORMS)
    return user_policy(name)


def _language_model(name: str) -> LanguageModel:
    model, at, url = name.removeprefix("llm:").partition("@")
    if not at or not model:
        raise ValidationError("policy", name, "llm:MODEL@URL")
    return LanguageModel(model, url)


def is_trained(name: str) -> bool:
    return not name.startswith("llm:") and not is_user_policy(name) and _split_agent(name)[0].exists()


def expand_agents(name: str) -> list[str]:
    """The name, or `name@0`, `name@1`, … if it is a folder with several agents."""
    path, number = _split_agent(name)
    if not is_trained(name) or number is not None:
        return [name]
    seeds = checkpoint.load_training(path).seeds
    return [name] if seeds == 1 else [f"{name}@{number}" for number in range(seeds)]


def _split_agent(name: str) -> tuple[Path, int | None]:
    """The file and agent number of `folder`, `file`, `folder@number`, `file@number`, or the name of a shipped agent."""
    place, _, number = name.rpartition("@")
    path = Path(place if place and number.isdecimal() else name)
    shipped = AGENTS / f"{name}{SUFFIX}"
    if shipped.is_file() and not path.exists():
        return shipped, None
    return path / CHECKPOINT if path.is_dir() else path, int(number) if place and number.isdecimal() else None


def _load_trained(name: str, env: Environment, params: Any, greedy: bool) -> Policy:
    path, number = _split_agent(name)
    if not path.exists():
        names = ", ".join(("random", *env.strategies(params)))
        shipped = ", ".join(sorted(path.stem for path in AGENTS.glob(f"*{SUFFIX}")))
        forms = "a folder of `tropism train` (FOLDER@2: one of its agents), module:function, or llm:MODEL@URL"
        raise ValidationError("policy", name, f"a policy of this environment ({names}), {shipped}, {forms}")
    trained_env, trained_params = checkpoint.load_training(path).environment()
    if trained_env.action_space(trained_params) != env.action_space(params):
        raise ValidationError("policy", name, f"an agent that acts in {env.action_space(params)!r}")
    space, trained_space = env.observation_space(params), trained_env.observation_space(trained_params)
    if _array_specs(space) != _array_specs(trained_space):
        raise ValidationError("policy", name, f"an agent that observes {space!r}, not {trained_space!r}")
    return load(path, number or 0, greedy=greedy)


def load(path: Path, seed: int = 0, greedy: bool = False, network: type | None = None) -> Policy:
    """Agent number `seed` of a checkpoint; `network` is a class that cannot be imported by its name."""
    return checkpoint.load_policy(path, seed, greedy, network)


def _array_specs(space: Space) -> list[tuple[tuple[int, ...], Any]]:
    """The shape and dtype of each array in an observation."""
    return [(part.shape or (), part.dtype) for part in leaf_spaces(space)]
