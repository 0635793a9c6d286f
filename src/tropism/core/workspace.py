"""The files of an episode."""

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Workspace(Protocol):
    """The files of one state. Paths are relative, with `/` between their parts; others raise ValidationError, and
    that of a missing file MissingFileError."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes, by path."""
        ...

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def write(self, path: str, data: bytes) -> Any:
        """Create or replace a file; returns the state that has it."""
        ...
