"""Episodes on disk: Parquet shards, a manifest, and what is needed to read and replay them."""

from tropism.errors import require_extra

require_extra("record", "tropism.record", "msgspec", "pyarrow")

from tropism.record.manifest import Manifest
from tropism.record.reader import Episode, Reader
from tropism.record.recorder import Recorder
from tropism.record.replay import Difference, first_difference, replay, session_of
from tropism.record.writer import Writer

__all__ = [
    "Difference",
    "Episode",
    "Manifest",
    "Reader",
    "Recorder",
    "Writer",
    "first_difference",
    "replay",
    "session_of",
]
