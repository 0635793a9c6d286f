"""The settings of a server."""

from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import ip_address
from typing import Literal

from tropism.errors import ValidationError
from tropism.serve.storage.working_memory import SessionLimits

InfoChoice = Literal["public", "all"]

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and access control of one server; times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    root_path: str = ""  # the path below which a proxy serves this server, such as /tropism
    tokens: tuple[str, ...] = ()
    admin_token: str | None = None  # required for forks, snapshots, restores, histories and private info
    info: InfoChoice = "public"  # "all" includes the private info of environments
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
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ValidationError("root_path", self.root_path, "a path such as /tropism, without a slash at its end")
        if not 0 <= self.port <= 65535:
            raise ValidationError("port", self.port, "0 (any free one) to 65535")
        for name in ("max_sessions", "max_sessions_per_token", "max_sockets", "max_body", "max_bytes_per_token"):
            if getattr(self, name) < 1:
                raise ValidationError(name, getattr(self, name), "at least 1")
        for name in ("idle_timeout", "header_timeout", "body_timeout"):
            if not getattr(self, name) > 0:
                raise ValidationError(name, getattr(self, name), "more than 0 seconds")
        for token in self.accepted_tokens:
            if not token or not token.isascii() or any(character.isspace() for character in token):
                raise ValidationError("token", token, "printable ASCII without spaces, not empty")

    @property
    def accepted_tokens(self) -> tuple[str, ...]:
        return self.tokens if self.admin_token is None else (*self.tokens, self.admin_token)

    def is_admin(self, owner: str) -> bool:
        """Whether this caller has the rights of the admin token; without one, every caller has."""
        return self.admin_token is None or owner == owner_of(self.admin_token)

    def shows_private_info(self, owner: str) -> bool:
        return self.info == "all" and self.is_admin(owner)


def owner_of(token: str) -> str:
    """The owner of sessions opened with this token: a digest of it."""
    return blake2b(token.encode(), digest_size=16).hexdigest()


def _is_loopback(host: str) -> bool:
    """Whether the host is reachable only from this machine; names other than localhost may resolve to any address."""
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False
