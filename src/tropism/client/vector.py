"""Many environments of one kind, stepped together over one socket."""

from collections.abc import Iterable
from operator import index
from typing import Any, SupportsIndex

from tropism.client.protocol import Exchange, LostError, Protocol, SilenceError, Talk, read
from tropism.client.sync import Driver
from tropism.errors import ServerError
from tropism.wire.arrays import arrays_of
from tropism.wire.codec import pack, unpack


class VectorClient:
    """Arrays in, arrays out; environment i repeats a session with its seed.

    `seed` is one for each environment, or the first of as many.
    `mode` says when an environment that has finished begins again: "next_step", "same_step", "disabled".
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
        asked = {"count": count, "mode": mode, "seeds": _plain(seed)}
        try:
            self.first = self._driver.run(_request(self._protocol, "open", asked))
        except BaseException:
            self.close()
            raise

    def reset(self, seed: Iterable[SupportsIndex] | int | None = None, mask: Any = None) -> dict[str, Any]:
        """Begin episodes: all, or those of `mask`; without a seed, the next ones."""
        return self._driver.run(_request(self._protocol, "reset_batch", {"seeds": _plain(seed), "mask": mask}))

    def step(self, actions: Any) -> dict[str, Any]:
        """`observation`, `reward`, `terminated`, `truncated` and `info`, each stacked."""
        return self._driver.run(_request(self._protocol, "step_batch", {"actions": actions}))

    def close(self) -> None:
        self._driver.run(self._protocol.close())

    def __enter__(self) -> "VectorClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _request(protocol: Protocol, kind: str, data: dict[str, Any]) -> Talk[dict[str, Any]]:
    """The reply with its arrays. A batch lives as long as its socket."""
    if kind != "open" and not protocol.connected:
        raise ServerError("SESSION_ERROR", "the connection was lost, and with it the batch; open another")
    yield from protocol.ensure_connected()
    try:
        reply = yield Exchange(pack({"type": kind, "data": data}))
    except LostError as lost:
        protocol.connected = False
        raise ServerError("SESSION_ERROR", f"the connection was lost, and with it the batch: {lost}") from None
    except SilenceError:
        protocol.connected = False
        raise ServerError("TIMEOUT", f"no reply to {kind} came in time; the batch is lost") from None
    return read(reply) if isinstance(reply, str) else arrays_of(unpack(reply)["data"])


def _plain(seed: Iterable[SupportsIndex] | int | None) -> list[int] | int | None:
    return seed if seed is None or isinstance(seed, int) else [index(each) for each in seed]
