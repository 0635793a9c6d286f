"""Recording onto a full disk."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tropism.errors import StateError, ValidationError
from tropism.record import Reader


def check_recorder_on_full_disk(recorder: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed steps and resets of CartPole are not recorded; the next reset starts a new episode."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    recorder.reset(seed=0)
    recorder.step(1)
    with pytest.raises(ValidationError, match=r"less than 2\*\*64"):
        recorder.reset(seed=2**64)
    recorder.step(1)  # it did not leave its episode
    for refused in (lambda: recorder.step(0), lambda: recorder.reset(seed=1)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space left"):
                refused()
        with pytest.raises(StateError, match="no episode is being recorded"):
            recorder.step(0)
        recorder.reset(seed=2)
    recorder.step(0)
    recorder.close()
    assert [episode.actions.tolist() for episode in Reader(folder)] == [[1, 1], [], [0]]
