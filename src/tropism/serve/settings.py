"""The settings of a server."""

from dataclasses import dataclass, field
from ipaddress import ip_address

from tropism.errors import ValidationError
from tropism.serve.storage.working_memory import SessionLimits

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and access control of one server; times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    max_sessions: int = 10_000
    max_sessions_per_token: int = 10_000
    max_sockets: int = 20_000
    max_bytes_per_token: int = 2**32  # in live sessions
    idle_timeout: float = 3600.0
    max_body: int = 2**20
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    processes: bool = False  # run each session of a blocking host environment in its own process
    session_limits: SessionLimits = field(default_factory=SessionLimits)

    def __post_init__(self) -> None:
        if not self.tokens and not _is_loopback(self.host):
            expected = "a loopback address, or a token (--token or TROPISM_TOKEN) that callers must send"
            raise ValidationError("host", self.host, expected)
        if not 0 <= self.port <= 65535:
            raise ValidationError("port", self.port, "0 (any free one) to 65535")
        for name in ("max_sessions", "max_sessions_per_token", "max_sockets", "max_body", "max_bytes_per_token"):
            if getattr(self, name) < 1:
                raise ValidationError(name, getattr(self, name), "at least 1")
        for name in ("idle_timeout", "header_timeout", "body_timeout"):
            if not getattr(self, name) > 0:
                raise ValidationError(name, getattr(self, name), "more than 0 seconds")
        for token in self.tokens:
            if not token or not token.isascii() or any(character.isspace() for character in token):
                raise ValidationError("token", token, "printable ASCII without spaces, not empty")


def _is_loopback(host: str) -> bool:
    """Whether the host is reachable only from this machine; names other than localhost may resolve to any address."""
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False
