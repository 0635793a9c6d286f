"""An environment is deleted by removing its file, its messages if it has typed ones, and its line of the registry."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tropism
from tropism.core.registry import BUILT_IN

SOURCE = Path(tropism.__file__).parent
LEFT = {"GridWorld-v0", "PlumeNav-v0"}  # of which other environments are variants, and one environment to run
FAMILIES = ("tropism.envs.plume.",)  # several ids in a file
IMPORT_ALL = """
import importlib, pkgutil, tropism
for module in pkgutil.walk_packages(tropism.__path__, "tropism."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from tropism.core.registry import presets, registered, unavailable_reasons
from tropism.wire.messages import observation_type
import gymnasium, tropism.gym
env = gymnasium.make("tropism/GridWorld-v0")
env.reset(seed=0)
env.step(1)
print(tropism.__file__, observation_type("Echo-v0"), sorted(presets("ppo")))
print(*[spec.id for spec in registered()], *unavailable_reasons())
"""


@pytest.mark.slow
def test_environments_can_be_deleted(tmp_path: Path):
    """All at once, so that no other module needs any of them."""
    shutil.copytree(SOURCE, tmp_path / "tropism", ignore=shutil.ignore_patterns("__pycache__"))
    registry = tmp_path / "tropism" / "core" / "registry.py"
    text = registry.read_text()
    deleted = [id for id in BUILT_IN if id not in LEFT and not BUILT_IN[id].startswith(FAMILIES)]
    for id in deleted:
        text = re.sub(rf'^    "{re.escape(id)}": .*\n', "", text, flags=re.MULTILINE)
        module = tmp_path / BUILT_IN[id].split(":")[0].replace(".", "/")
        shutil.rmtree(module.parent) if module.parent.name != "envs" else module.with_suffix(".py").unlink(True)
        messages = module.parent.stem if module.parent.name != "envs" else module.name
        (tmp_path / "tropism" / "wire" / "messages" / f"{messages}.py").unlink(missing_ok=True)
    registry.write_text(text)
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, ids = done.stdout.splitlines()
    assert first.startswith(str(tmp_path))
    assert " None [" in first
    assert ids.split() == [id for id in BUILT_IN if id not in deleted]
