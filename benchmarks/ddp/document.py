"""Writes tables and pictures of results into benchmarks/results/compression-when.md.

The prose of the page is written by hand. The text between `<!-- measured: NAME -->` and `<!-- end
-->` is replaced. Figures of the tables are written as JSON next to the pictures.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.ddp import plot, stepping_report, steps_report, training_report
from benchmarks.ddp.links import LINKS, ONE_HOST
from benchmarks.ddp.plans import TUNING_SEED
from benchmarks.ddp.study import Study
from benchmarks.ddp.tasks import TASKS
from benchmarks.net.launch import ROOT

PAGE = ROOT / "benchmarks" / "results" / "compression-when.md"
FOLDER = PAGE.with_suffix("")


def write(results: Path, study: Study) -> int:
    """Updates the page from the folder of results. Only comparisons with results are replaced."""
    training, stepping = _newest(results, "training"), _newest(results, "stepping")
    alone = _newest(results, ONE_HOST)
    if not training and not stepping and not alone:
        print(f"{results}: no results; `make bench-ddp bench-critics` measures", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    if training:
        _write_training(training)
    if stepping:
        _write_stepping("critics", stepping, study)
    if alone:
        _write_stepping(ONE_HOST, alone, study)
    if study.found:
        _replace("steps", steps_report.markdown(study))
    return 0


def _newest(folder: Path, kind: str) -> list[dict]:
    """Returns the last result of each run for the commit that was measured last. A table has
    results of one commit only."""
    newest: dict[str, dict] = {}
    last = ""
    for path in sorted(folder.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime):
        result = json.loads(path.read_text())
        last = result["commit"]
        newest[path.stem.rpartition("-")[0]] = result
    return sorted((r for r in newest.values() if r["commit"] == last), key=_place)


def _place(result: dict) -> tuple:
    """Returns the sort key of a result: tasks and links in the order of their lists."""
    settings = result["settings"]
    rate, task = settings["rate"], settings.get("task")
    return (
        list(TASKS).index(task) if task else 0,
        LINKS.index(rate) if rate in LINKS else len(LINKS),
        settings["batch"],
        settings["seed"],
    )


def _write_training(results: Sequence[dict]) -> None:
    tuning = [result for result in results if result["settings"]["seed"] == TUNING_SEED]
    others = [result for result in results if result["settings"]["seed"] != TUNING_SEED]
    rows = [training_report.as_dict(row) for row in training_report.make_rows(others)]
    _publish("training", training_report.markdown(others, tuning), rows, plot.draw_training, others)


def _write_stepping(name: str, results: Sequence[dict], study: Study) -> None:
    cells = [asdict(stepping_report.make_cell(result, study)) for result in results]
    text = stepping_report.markdown(results, study)
    _publish(name, text, cells, plot.draw_stepping, results)


def _publish(
    name: str,
    text: str,
    rows: list[dict],
    draw: Callable[[Sequence[dict], Path], None],
    results: Sequence[dict],
) -> None:
    picture = FOLDER / f"{name}.png"
    draw(results, picture)
    facts = {"commit": results[0]["commit"], "machine": results[0]["machine"], "rows": rows}
    text_of_facts = json.dumps(_finite(facts), indent=1, allow_nan=False)
    (FOLDER / f"{name}.json").write_text(text_of_facts + "\n")
    link = f"![{name}]({FOLDER.name}/{picture.name})"
    _replace(name, f"{text}\n{link}\n")
    print(f"written: {PAGE}, {picture}")


def _replace(name: str, text: str) -> None:
    """Replaces the text with that name in the page."""
    pattern = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    page, count = pattern.subn(lambda m: f"{m[1]}{text}{m[2]}", PAGE.read_text())
    if count != 1:
        raise ValueError(f"{PAGE}: expected one '<!-- measured: {name} -->' ... '<!-- end -->'")
    PAGE.write_text(page)


def _finite(value: Any) -> Any:
    """Replaces infinities by null, because JSON has none. They stand for codecs that never reach
    the target."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
