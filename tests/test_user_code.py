"""User code is told from libraries by its file."""

import json
from pathlib import Path

import numpy as np
import pytest

import tropism
from tropism.user_code import is_library


@pytest.mark.parametrize("file", [tropism.__file__, json.__file__, np.__file__, "<frozen importlib._bootstrap>"])
def test_a_library(file: str):
    assert is_library(file)


def test_user_code(tmp_path: Path):
    file = tmp_path / "maze.py"
    file.write_text("")
    assert not is_library(str(file))
    assert not is_library(__file__)
