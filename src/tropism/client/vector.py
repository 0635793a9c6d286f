"""A batch of environments, stepped together over one socket."""

from collections.abc import Iterable
from operator import index
from typing import Any, SupportsIndex

from tropism.client.protocol import (
    ConnectionLostError,
    EffectGenerator,
    Protocol,
    ReplyTimeoutError,
    RoundTrip,
    decode_reply,
)
from tropism.client.sync import Driver
from tropism.errors import ServerError
from tropism.wire.arrays import decode_arrays
from tropism.wire.codec import pack, unpack


class VectorClient:
    """Steps a batch with stacked arrays; environment i gives the same results as a session with its seed.

    `seed` is one seed per environment, or the first of consecutive seeds.
    `mode` is the auto-reset mode: "next_step", "same_step", "disabled".
    """

    def __init__(
        self,
        url: str,
        count: int,
        *,
        seed: Iterable[SupportsIndex] | int | None = None,
        mode: str = "next_step",
        token: str | None = None,
        timeout: float = 60.0,
    ):
        self.count = count
        self._protocol = Protocol(url, token)
        self._driver = Driver(timeout)
        data = {"count": count, "mode": mode, "seeds": _to_ints(seed)}
        try:
            self.first = self._driver.run(_request(self._protocol, "open", data))
        except BaseException:
            self.close()
            raise

    def reset(self, seed: Iterable[SupportsIndex] | int | None = None, mask: Any = None) -> dict[str, Any]:
        """Start new episodes, in all environments or those in `mask`; without `seed`, with newly drawn seeds."""
        return self._driver.run(_request(self._protocol, "reset_batch", {"seeds": _to_ints(seed), "mask": mask}))

    def step(self, actions: Any) -> dict[str, Any]:
        """`observation`, `reward`, `terminated`, `truncated` and `info`, each stacked."""
        return self._driver.run(_request(self._protocol, "step_batch", {"actions": actions}))

    def close(self) -> None:
        self._driver.run(self._protocol.close())

    def __enter__(self) -> "VectorClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _request(protocol: Protocol, kind: str, data: dict[str, Any]) -> EffectGenerator[dict[str, Any]]:
    """The reply, with arrays decoded. A batch ends with its connection."""
    if kind != "open" and not protocol.connected:
        raise ServerError("SESSION_ERROR", "the connection was lost and the batch has ended; create another client")
    yield from protocol.ensure_connected()
    try:
        reply = yield RoundTrip(pack({"type": kind, "data": data}))
    except ConnectionLostError as error:
        protocol.connected = False
        raise ServerError("SESSION_ERROR", f"the connection was lost and the batch has ended: {error}") from None
    except ReplyTimeoutError:
        protocol.connected = False
        raise ServerError("TIMEOUT", f"timeout waiting for the reply to {kind}; the batch has ended") from None
    return decode_reply(reply) if isinstance(reply, str) else decode_arrays(unpack(reply)["data"])


def _to_ints(seed: Iterable[SupportsIndex] | int | None) -> list[int] | int | None:
    return seed if seed is None or isinstance(seed, int) else [index(each) for each in seed]
