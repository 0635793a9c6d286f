"""The lease of a session in the file."""

from tropism.serve.storage.protocol import Claim


class LeasedSession:
    """A claimed session, and where it is in the file: the seqs of its episode's reset and of its next entry."""

    __slots__ = ("begin", "claim", "end", "expires", "is_doubtful", "number")

    def __init__(self, claim: Claim, expires: float):
        self.claim = claim
        self.expires = expires
        self.number: int | None = None  # None until it is stored
        self.begin = self.end = 0
        self.is_doubtful = False
