"""Recorded episodes: Parquet shards and a manifest, with a writer, a reader and replay."""

from tropism.errors import require_extra

require_extra("record", "tropism.record", "msgspec", "pyarrow")

from tropism.record.manifest import Manifest
from tropism.record.reader import Reader, RecordedEpisode
from tropism.record.recorder import Recorder
from tropism.record.replay import Difference, first_difference, replay, session_of
from tropism.record.writer import Writer

__all__ = [
    "Difference",
    "Manifest",
    "Reader",
    "RecordedEpisode",
    "Recorder",
    "Writer",
    "first_difference",
    "replay",
    "session_of",
]
