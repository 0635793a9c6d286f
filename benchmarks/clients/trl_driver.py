"""Plays an environment as TRL's trainer does: tools from public methods, their schemas from transformers."""

import inspect
import json
import sys

from interruptions import Server, proxy_in_thread
from transformers.utils import get_json_schema

from tropism.trl import environment


def play(url):
    cls = environment("ConnectFour-v0", url)
    env = cls()
    found = [name for name, _ in inspect.getmembers(cls, predicate=inspect.isfunction) if not name.startswith("_")]
    assert set(found) == {"reset", "get_reward", "drop_disc"}, found
    schema = get_json_schema(env.drop_disc)["function"]
    assert schema["parameters"]["properties"]["column"]["type"] == "integer", schema
    assert schema["parameters"]["required"] == ["column"], schema
    for seed in range(2):
        text = env.reset(prompt=[{"role": "user", "content": "Play."}], seed=seed, difficulty="hard")
        assert isinstance(text, str), text
        assert env.get_reward() == 0.0
        for move in range(21):
            text = env.drop_disc(column=move % 7)
            if "over" in text:
                break
        assert abs(env.get_reward()) <= 1.0


def returns(url, interruption=None):
    """The texts and the return of an episode, which is interrupted before every action."""
    env, texts = environment("ConnectFour-v0", url)(), []
    texts.append(env.reset(seed=3))
    for move in range(21):
        if interruption is not None:
            interruption()
        texts.append(env.drop_disc(column=move % 7))
        if "over" in texts[-1]:
            break
    return texts, env.get_reward()


def dropped(url):
    with proxy_in_thread(url) as (address, cut):
        assert returns(address, cut) == returns(url)


def killed(url):
    with Server("ConnectFour-v0") as server:
        assert returns(server.url, server.restart) == returns(url)


def verdict(check, url):
    try:
        check(url)
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}"
    return "ok"


CHECKS = {"": play, ", dropped socket": dropped, ", killed server": killed}

if __name__ == "__main__":
    print(
        json.dumps({f"TRL's environment_factory{what}": verdict(check, sys.argv[1]) for what, check in CHECKS.items()})
    )
