"""Plays an environment as TRL's trainer does: tools from public methods, their schemas from transformers."""

import inspect
import json
import sys

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


def verdict(url):
    try:
        play(url)
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}"
    return "ok"


if __name__ == "__main__":
    print(json.dumps({"TRL's environment_factory": verdict(sys.argv[1])}))
