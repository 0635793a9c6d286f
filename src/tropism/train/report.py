"""HTML reports of a training and its evaluation: one self-contained file with embedded images."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tropism.train.evaluation import Evaluation, Interval
from tropism.train.pictures import dark_path

TYPES = {".png": "image/png", ".gif": "image/gif"}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --paper: #fff; --ink: #171b2c; }
@media (prefers-color-scheme: dark) { :root { --paper: #0b0e1d; --ink: #e8ebf7; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.2rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; margin-bottom: .2rem; } h2 { margin-top: 2.4rem; font-size: 1.2rem; }
.lead { opacity: .75; margin-top: 0; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
tr.best { background: var(--soft); font-weight: 600; }
small { opacity: .65; font-weight: 400; } td small { white-space: nowrap; }
.scroll { overflow-x: auto; }
figure { margin: 1rem 0; } figure .wide { min-width: 38rem; }
img { max-width: 100%; border-radius: .5rem; vertical-align: top; } figcaption { opacity: .75; font-size: .9rem; }
dt { font-weight: 600; } dd { margin: 0 0 .6rem; opacity: .85; }
pre { background: var(--soft); padding: .8rem 1rem; border-radius: .5rem; overflow-x: auto; }
@media (max-width: 560px) {
  body { margin-top: 1.5rem; padding: 0 1rem; }
  th, td { padding: .4rem .3rem; font-size: .85rem; } td small { display: block; }
}
"""
DEFINITIONS = {
    "found the source": "The share of episodes in which the agent came within the goal radius of the source before "
    "the episode was truncated. Wilson's interval.",
    "steps to find it": "The mean number of steps of the episodes that found the source. Bootstrap interval.",
    "path efficiency": "The straight distance from start to end, divided by the length of the path; the mean of the "
    "episodes that found the source. Bootstrap interval.",
    "intervals": "All intervals cover 95 %.",
}


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
    drawn = "\n".join(_figure(image) for image in images if image.path.exists())
    body = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(lead)}</p>
{_table(evaluations)}
{drawn}
<h2>How this was measured</h2>
{_definitions({**facts, **DEFINITIONS})}
<h2>What to try next</h2>
<pre>{html.escape(next_steps)}</pre>
</html>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)


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
        rows.append(f"<tr{kind}><td>{html.escape(each.policy)}</td>{''.join(cells)}</tr>")
    episodes = len(searches[0][0].returns)
    head = "".join(f"<th>{name}</th>" for name in ("policy", "found the source", "steps to find it", "path efficiency"))
    return (
        f"<div class='scroll'><table><tr>{head}</tr>{''.join(rows)}</table></div>"
        f"<p><small>The same {episodes} seeded episodes for each; 95 % intervals.</small></p>"
    )


def _cell(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "<td>–</td>"
    mean, low, high = (form.format(number) for number in interval)
    return f"<td>{mean} <small>{low} to {high}</small></td>"


def _definitions(terms: Mapping[str, str]) -> str:
    items = (f"<dt>{html.escape(term)}</dt><dd>{html.escape(meaning)}</dd>" for term, meaning in terms.items())
    return f"<dl>{''.join(items)}</dl>"


def _figure(image: ReportImage) -> str:
    caption, kind = html.escape(image.caption), " class='wide'" if image.wide else ""
    dark = dark_path(image.path)
    source = f'<source srcset="{_data(dark)}" media="(prefers-color-scheme: dark)">' if dark.exists() else ""
    picture = f'<picture>{source}<img{kind} src="{_data(image.path)}" alt="{caption}"></picture>'
    return f'<figure><div class="scroll">{picture}</div><figcaption>{caption}</figcaption></figure>'


def _data(path: Path) -> str:
    return f"data:{TYPES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
