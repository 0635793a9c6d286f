"""The README, the docs and the examples are run, each page as one program."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import report
from tests.ids import mark_slow

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]
# Need other packages; benchmarks/openenv_compat.py and tests/scale/test_rllib.py run them.
ELSEWHERE = {"openenv_class.py", "verifiers_eval.py", "rllib_train.py"}
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name not in ELSEWHERE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> str:
    return "\n".join(BLOCK.findall((ROOT / page).read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("page", mark_slow((page for page in PAGES if blocks(page)), {"README.md"}))
def test_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(blocks(page))
    done = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", mark_slow(EXAMPLES, {"lights_out.py"}))
def test_example_runs(script: str, tmp_path: Path) -> None:
    path = ROOT / "examples" / script
    done = subprocess.run([sys.executable, "-W", "error", path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_tables_have_the_stored_results(page: Path) -> None:
    text = page.read_text()
    assert report.PLACE.sub(report.fill, text) == text, "run python -m benchmarks.report"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads((ROOT / "examples" / "search_times.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    script = tmp_path / "notebook.py"
    script.write_text(code.replace("SEARCHES = 1000", "SEARCHES = 40"))
    done = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_example_environment_fits_in_forty_lines() -> None:
    [source] = [block for block in BLOCK.findall((ROOT / "README.md").read_text()) if "class LightsOut(" in block]
    assert len([line for line in source.splitlines() if line.strip()]) < 40
    assert source == (ROOT / "examples" / "lights_out.py").read_text()


@pytest.mark.slow
def test_the_environment_in_the_docs_keeps_all_laws(tmp_path: Path) -> None:
    (tmp_path / "dot.py").write_text(blocks("docs/own.md"))
    command = [sys.executable, "-m", "tropism", "check", "dot:Dot"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
