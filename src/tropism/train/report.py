"""HTML reports of a training run and its evaluation: one self-contained file with embedded images."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import NamedTuple

from tropism.drawing.plots import dark_path
from tropism.train.evaluation import Evaluation, Interval

TEMPLATE = Path(__file__).with_name("report.html")
TYPES = {".png": "image/png", ".gif": "image/gif"}
COLUMNS = ("policy", "found the source", "steps to find it", "path efficiency")


class ReportImage(NamedTuple):
    """An image and its caption; a wide one scrolls on a narrow screen."""

    path: Path
    caption: str
    wide: bool = False


def write_report(
    path: Path,
    title: str,
    lead: str,
    evaluations: Sequence[Evaluation],
    images: Sequence[ReportImage],
    facts: Mapping[str, str],
    next_steps: str,
) -> None:
    """Write the report, skipping images that do not exist; `facts` describes how the numbers were obtained."""
    parts = {
        "title": escape(title),
        "lead": escape(lead),
        "table": _table(evaluations),
        "figures": "\n".join(_figure(image) for image in images if image.path.exists()),
        "facts": "\n".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in facts.items()),
        "next_steps": escape(next_steps),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template(TEMPLATE.read_text()).substitute(parts))


def _table(evaluations: Sequence[Evaluation]) -> str:
    searches = [(each, each.search) for each in evaluations if each.search is not None]
    if not searches:
        return ""
    best = max(search.success.mean for _, search in searches)
    rows: list[str] = []
    for each, search in searches:
        figures = each.summary()
        cells = [
            _cell(search.success, "{:.1%}"),
            _cell(figures["time_to_find"], "{:.1f}"),
            _cell(figures["path_efficiency"], "{:.2f}"),
        ]
        kind = ' class="best"' if search.success.mean == best else ""
        rows.append(f"<tr{kind}><td>{escape(each.policy)}</td>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    return (
        f"<div class='scroll'><table><tr>{head}</tr>{''.join(rows)}</table></div>"
        f"<p><small>The same {len(evaluations[0].returns)} seeded episodes for each; 95 % intervals.</small></p>"
    )


def _cell(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "<td>–</td>"
    mean, low, high = (form.format(number) for number in interval)
    return f"<td>{mean} <small>{low} to {high}</small></td>"


def _figure(image: ReportImage) -> str:
    caption, kind = escape(image.caption), " class='wide'" if image.wide else ""
    dark = dark_path(image.path)
    source = f'<source srcset="{_data(dark)}" media="(prefers-color-scheme: dark)">' if dark.exists() else ""
    picture = f'<picture>{source}<img{kind} src="{_data(image.path)}" alt="{caption}"></picture>'
    return f'<figure><div class="scroll">{picture}</div><figcaption>{caption}</figcaption></figure>'


def _data(path: Path) -> str:
    return f"data:{TYPES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
