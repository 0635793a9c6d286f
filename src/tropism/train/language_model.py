"""A language model as a player: it is told the observation in words and answers with an action in words."""

import json
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from tropism.errors import ServerError, ValidationError
from tropism.train.runner import Moment, Player

MEMORY = 39  # messages that are sent along; odd, so that they begin and end with what the model is told
RULES = (
    "You act in an environment, step by step. Each message tells you what you observe and which actions there are. "
    "Answer with one action and nothing else."
)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else, where the key is not meant for."""

    def redirect_request(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


OPENER = urllib.request.build_opener(_Stay)


class LanguageModel(Player):
    """Any server that speaks the chat completions protocol.

    The key in OPENAI_API_KEY is sent where nobody can read it on the way: over https, or on this machine.
    """

    def __init__(self, model: str, url: str, timeout: float = 120.0):
        if not url.startswith(("http://", "https://")):
            raise ValidationError("policy", url, "llm:MODEL@URL with an address such as http://127.0.0.1:8080/v1")
        self._model = model
        self._url = url.rstrip("/") + "/chat/completions"
        self._private = url.startswith("https://") or urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._timeout = timeout
        self._messages: list[dict[str, str]] = []
        self._seed = 0

    def begin(self, seed: int) -> None:
        self._messages, self._seed = [], seed

    def act(self, moment: Moment) -> str:
        told = str(moment.obs) if moment.text is None else moment.text
        said = told if moment.error is None else f"That was no action: {moment.error}\n{told}"
        self._messages.append({"role": "user", "content": said})
        answer = self._answer()
        self._messages.append({"role": "assistant", "content": answer})
        return answer.strip()

    def _answer(self) -> str:
        messages = [{"role": "system", "content": RULES}, *self._messages[-MEMORY:]]
        body = json.dumps({"model": self._model, "messages": messages, "seed": self._seed}).encode()
        request = urllib.request.Request(self._url, body, self._headers())
        try:
            with OPENER.open(request, timeout=self._timeout) as reply:
                return _content(json.load(reply))
        except urllib.error.HTTPError as error:
            raise ServerError(
                "MODEL_ERROR", f"{self._url} answered {error.code}: {error.read()[:300].decode(errors='replace')}"
            ) from None
        except (urllib.error.URLError, TimeoutError, ValueError) as error:
            raise ServerError(
                "MODEL_ERROR", f"{self._url} does not answer as a language model does ({error})"
            ) from None

    def _headers(self) -> dict[str, str]:
        key = os.environ.get("OPENAI_API_KEY") if self._private else None
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _content(reply: Any) -> str:
    match reply:
        case {"choices": [{"message": {"content": str(content)}}, *_]}:
            return content
        case _:
            raise ValueError(f"the reply has no choices[0].message.content: {json.dumps(reply)[:200]}")
