"""Makes the study's table in Markdown: steps to the target by codec, and final results."""

from __future__ import annotations

from benchmarks.compression_study import tasks as study_tasks
from benchmarks.ddp.stepping_report import TITLES
from benchmarks.ddp.study import Found, Study


def markdown(study: Study) -> str:
    codecs = list(dict.fromkeys(codec for _, _, codec in study.found))
    rows = list(dict.fromkeys((task, batch) for task, batch, _ in study.found))
    lines = [
        f"| network | batch | {' | '.join(codecs)} |",
        "|---|--:|" + "--:|" * len(codecs),
    ]
    for task, batch in rows:
        cells = [_cell(task, study.found.get((task, batch, codec))) for codec in codecs]
        lines.append(f"| {TITLES.get(task, task)} | {batch} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"commit {study.commit}."]) + "\n"


def _cell(task: str, found: Found | None) -> str:
    if found is None:
        return "-"
    own = study_tasks.TASKS[task]
    steps = "not reached" if found.steps is None else str(found.steps)
    if found.metric is None:
        return steps
    merit = f"{found.metric:.1%}" if own.better > 0 else f"{found.metric:.3f} nats"
    return f"{steps}, {merit}"
