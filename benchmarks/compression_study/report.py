"""Writes the study as JSON, and as Markdown with pictures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.compression_study.analysis import Row
from benchmarks.compression_study.plan import PATIENCE, Cell
from benchmarks.compression_study.tasks import TASKS

TITLES = {
    "difference": "Paired difference at equal steps, with its 95 % interval. The bounds are grey.",
    "curves": "Mean of the loss over the seeds. Dashed lines are without error feedback.",
    "drift": "Cumulative drift. Dashed lines are without error feedback.",
}


def about(commit: str) -> dict:
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if "model name" in line),
        platform.machine(),
    )
    return {
        "commit": commit,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": cpu,
        "cores": os.cpu_count(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def save_json(path: Path, facts: dict, rows: Sequence[Row]) -> None:
    text = json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1)
    path.write_text(text + "\n")


def markdown(
    facts: dict, cells: Sequence[Cell], rows: Sequence[Row], pictures: dict[str, Path]
) -> str:
    out = [_introduction(facts, cells)]
    for cell in cells:
        own = [r for r in rows if cell.owns(r.task, r.optimiser, r.batch)]
        out.append(_section(cell, own))
    out += [f"{TITLES[kind]}\n\n![{kind}]({path.name})\n" for kind, path in pictures.items()]
    return "\n".join(out)


def _introduction(facts: dict, cells: Sequence[Cell]) -> str:
    tasks = "\n".join(
        f"- {name}: {TASKS[name].about}" for name in dict.fromkeys(c.task for c in cells)
    )
    bounds = f"{TASKS['digits'].bound} % accuracy or +-{TASKS['text'].bound} nats"
    return f"""# What compression does to training

Written by `make compression-study` at {facts["commit"]}, on {facts["cores"]} cores of \
{facts["cpu"]}, torch {facts["torch"]}, Python {facts["python"]}.
Edit `benchmarks/compression_study/report.py`, not this file.

Four ranks are simulated in one process. There is one model, and each rank has its own batches,
gradients and residuals. They exchange gradients through the schedules and codecs of real processes.
`make compression-study ARGS=--ddp-check` compares that with DDP over four processes, bit for bit.

{tasks}

`sgd` has momentum 0.9, and text clips the norm of the averaged gradient at 1. The learning rate is
the best one of the uncompressed run, on seeds of its own, and all codecs use it. A run of a row and
the run of `none` with the same seed are a pair, with the same initial parameters and batches.

Codecs have their defaults. Parameters below 1024 elements and norms are uncompressed, embeddings
have at least int8, and codecs below 8 bits have error feedback. `/no-ef` means without error
feedback, and `/warmup=30` means that the first 30 steps are uncompressed.

- difference: paired difference from uncompressed at equal steps, and the 95 % interval of its mean
  (Student's t).
- same: the interval lies within +-{bounds}. For onebit and topk it means
  that they come within 1 % of the uncompressed result in at most {PATIENCE} times its steps.
- steps: steps of the mean curve to within that 1 %, and those of the uncompressed run in
  parentheses.
- drift: norm(applied + residuals - true) / norm(true) after the last step, over the parameters that
  have the codec. `applied` is the sum of the averages that were applied, `true` the sum of the
  exact averages, and `residuals` the mean of the ranks' residuals.
- as expected: with error feedback the drift is below 1e-6. Without it, it is at least 10 % for int4
  and 50 % for onebit and topk.
- wire: bytes of an uncompressed allreduce / bytes that were sent, for all parameters.
"""


def _section(cell: Cell, rows: Sequence[Row]) -> str:
    task = TASKS[cell.task]
    lr = rows[0].lr if rows else 0
    columns: dict[str, Callable[[Row], str]] = {
        "codec": lambda r: f"`{r.variant}`",
        "accuracy %" if task.better > 0 else "loss": lambda r: _number(r.metric, task.scale, 3),
        f"difference, {task.unit}": lambda r: _number(r.difference, 1, 3, "+"),
        "95 % interval": _interval,
        "same": lambda r: r.verdict,
        "steps": lambda r: f"{r.steps_to_target or '-'} ({r.steps_uncompressed or '-'})",
        "drift": lambda r: "" if r.drift is None else f"{r.drift:.1e}",
        "as expected": lambda r: r.drift_verdict,
        "wire": lambda r: f"{r.wire_ratio:.2f}",
    }
    lines = [
        f"## {cell.task}, {cell.optimiser}, batch {cell.batch}, {cell.steps} steps, "
        f"lr {lr:g}, seeds: {cell.seeds}\n",
        "| " + " | ".join(columns) + " |",
        "|---" * len(columns) + "|",
    ]
    lines += ["| " + " | ".join(cellof(r) for cellof in columns.values()) + " |" for r in rows]
    return "\n".join(lines) + "\n"


def _interval(row: Row) -> str:
    if row.diverged:
        return f"diverged: {row.diverged} of {row.seeds}"
    if row.low is None or row.high is None:
        return ""
    return f"{row.low:+.3f} .. {row.high:+.3f}"


def _number(value: float | None, scale: float, digits: int, sign: str = "") -> str:
    return "" if value is None else f"{value * scale:{sign}.{digits}f}"
