"""A report of a training and its evaluation: one HTML file that opens anywhere, pictures inside."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tropism.train.evaluate import Evaluation, Interval

TYPES = {".png": "image/png", ".gif": "image/gif"}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.9rem; margin-bottom: .2rem; } h2 { margin-top: 2.4rem; font-size: 1.2rem; }
.lead { opacity: .75; margin-top: 0; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
tr.best { background: var(--soft); font-weight: 600; }
small { opacity: .65; font-weight: 400; white-space: nowrap; }
figure { margin: 1rem 0; } img { max-width: 100%; border-radius: .5rem; } figcaption { opacity: .75; font-size: .9rem; }
pre { background: var(--soft); padding: .8rem 1rem; border-radius: .5rem; overflow-x: auto; }
"""


class Shown(NamedTuple):
    """A picture and what is to be seen in it."""

    path: Path
    caption: str


def write(
    path: Path, title: str, lead: str, evaluations: Sequence[Evaluation], pictures: Sequence[Shown], next_steps: str
) -> None:
    """Pictures that were not drawn are left out."""
    drawn = "\n".join(_figure(shown) for shown in pictures if shown.path.exists())
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
    return (
        "<table><tr><th>policy</th><th>found the source</th><th>steps to find it</th><th>path efficiency</th></tr>"
        f"{''.join(rows)}</table><p><small>The same {episodes} seeded episodes for each; 95 % intervals.</small></p>"
    )


def _cell(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "<td>–</td>"
    mean, low, high = (form.format(number) for number in interval)
    return f"<td>{mean} <small>{low} to {high}</small></td>"


def _figure(shown: Shown) -> str:
    data = base64.b64encode(shown.path.read_bytes()).decode()
    caption = html.escape(shown.caption)
    source = f"data:{TYPES[shown.path.suffix]};base64,{data}"
    return f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
