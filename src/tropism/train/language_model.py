"""A policy that sends observations as text to a language model and returns its replies as actions."""

import json
import os
import urllib.error
import urllib.request
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tropism.errors import ServerError, ValidationError

MAX_MESSAGES = 39  # messages of context per request; odd, so that the first and the last are observations
SYSTEM_PROMPT = (
    "You act in an environment, step by step. Each message tells you what you observe and which actions there are. "
    "Answer with one action and nothing else."
)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, so that the key is not sent to another host."""

    def redirect_request(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


OPENER = urllib.request.build_opener(_NoRedirects)


Messages = tuple[dict[str, str], ...]


class LanguageModel:
    """A client of any server with the chat completions API; its memory is the conversation.

    The key in OPENAI_API_KEY is sent only over https or to this machine.
    """

    observes: ClassVar[str] = "text"

    def __init__(self, model: str, url: str, timeout: float = 120.0):
        if not url.startswith(("http://", "https://")):
            raise ValidationError("policy", url, "llm:MODEL@URL with a URL such as http://127.0.0.1:8080/v1")
        self._model = model
        self._url = url.rstrip("/") + "/chat/completions"
        self._sends_key = url.startswith("https://") or urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._timeout = timeout

    def init(self, key: int) -> tuple[int, Messages]:
        """The seed of all completions of the episode, and no messages."""
        return key, ()

    def act(self, key: int, memory: tuple[int, Messages], obs: str) -> tuple[str, tuple[int, Messages]]:  # noqa: ARG002
        seed, messages = memory
        messages = (*messages, {"role": "user", "content": obs})[-MAX_MESSAGES:]
        reply = self._complete(seed, messages)
        return reply.strip(), (seed, (*messages, {"role": "assistant", "content": reply}))

    def _complete(self, seed: int, messages: Messages) -> str:
        conversation = [{"role": "system", "content": SYSTEM_PROMPT}, *messages]
        payload = json.dumps({"model": self._model, "messages": conversation, "seed": seed}).encode()
        request = urllib.request.Request(self._url, payload, self._headers())
        try:
            with OPENER.open(request, timeout=self._timeout) as reply:
                return _content(json.load(reply))
        except urllib.error.HTTPError as error:
            raise ServerError(
                "MODEL_ERROR",
                f"{self._url} replied with status {error.code}: {error.read()[:300].decode(errors='replace')}",
            ) from None
        except (urllib.error.URLError, TimeoutError, ValueError) as error:
            raise ServerError("MODEL_ERROR", f"{self._url} did not return a chat completion ({error})") from None

    def _headers(self) -> dict[str, str]:
        key = os.environ.get("OPENAI_API_KEY") if self._sends_key else None
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _content(reply: Any) -> str:
    match reply:
        case {"choices": [{"message": {"content": str(content)}}, *_]}:
            return content
        case _:
            raise ValueError(f"the reply has no choices[0].message.content: {json.dumps(reply)[:200]}")
