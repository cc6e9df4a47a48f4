"""Evaluates the runs: one row per cell and variant."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t as student_t

from benchmarks.compression_study.plan import PATIENCE, Cell
from benchmarks.compression_study.tasks import TASKS, Task
from benchmarks.compression_study.variants import UNCOMPRESSED, Variant

DRIFT_WITH_FEEDBACK = 1e-6
DRIFT_WITHOUT = {"int4": 0.1, "onebit": 0.5, "topk": 0.5}

Results = dict[tuple[Cell, str], list[dict]]


@dataclass(frozen=True)
class Row:
    task: str
    optimiser: str
    batch: int
    lr: float
    variant: str
    seeds: int
    diverged: int
    metric: float | None  # mean over seeds, at equal steps
    difference: float | None  # mean paired difference to uncompressed, in the task's unit
    low: float | None  # its 95 % interval
    high: float | None
    steps_to_target: int | None  # steps of the mean curve, or None if the target was not reached
    steps_uncompressed: int | None  # steps of the uncompressed run to the same target
    verdict: str  # "yes", "no", or "" without a criterion
    drift: float | None
    drift_verdict: str  # likewise for the drift
    wire_ratio: float


def rows(results: Results, rates: dict[Cell, float]) -> list[Row]:
    return [
        make_row(cell, rates[cell], variant, runs, results[cell, UNCOMPRESSED])
        for (cell, variant), runs in results.items()
    ]


def make_row(cell: Cell, lr: float, text: str, runs: Sequence[dict], plain: Sequence[dict]) -> Row:
    task, variant = TASKS[cell.task], Variant.parse(text)
    sound = [pair for pair in zip(runs, plain, strict=True) if not pair[0]["diverged"]]
    diverged = len(runs) - len(sound)
    pairs = [(metric_at(a, cell.steps), metric_at(b, cell.steps)) for a, b in sound]
    differences = [task.scale * (a - b) for a, b in pairs]
    low, high = interval(differences)
    reference = mean_curve(plain).get(cell.steps, math.nan)
    target = reference - task.better * task.tolerance(reference)
    own_steps = None if diverged else first_step(task, runs, target)
    drifts = [run["curve"]["drift"][-1] for run in runs if run["curve"]["drift"]]
    drift = statistics.fmean(drifts) if drifts else None
    row = {
        "metric": statistics.fmean(a for a, _ in pairs) if pairs else None,
        "difference": statistics.fmean(differences) if pairs else None,
        "steps_to_target": own_steps,
        "verdict": verdict(task, variant, diverged, (low, high), own_steps, cell.steps),
        "drift": drift,
        "drift_verdict": drift_verdict(variant, drift),
        "wire_ratio": statistics.fmean(run["wire_ratio"] for run in runs),
    }
    return Row(
        *(cell.task, cell.optimiser, cell.batch, lr, text, len(runs), diverged),
        low=low,
        high=high,
        steps_uncompressed=first_step(task, plain, target),
        **row,
    )


def interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of the mean by Student's t; None for less than two values."""
    count = len(differences)
    if count < 2:
        return None, None
    mean = statistics.fmean(differences)
    half = student_t.ppf(0.975, count - 1) * statistics.stdev(differences) / math.sqrt(count)
    return mean - half, mean + half


def verdict(
    task: Task,
    variant: Variant,
    diverged: int,
    bounds: tuple[float | None, float | None],
    own_steps: int | None,
    steps: int,
) -> str:
    if variant.codec == UNCOMPRESSED or not variant.feedback:
        return ""
    if variant.slow:
        return "yes" if own_steps is not None and own_steps <= PATIENCE * steps else "no"
    if variant.family == "int2" and task.name == "text":
        return ""
    low, high = bounds
    if diverged or low is None or high is None:
        return "no" if diverged else ""
    return "yes" if -task.bound <= low and high <= task.bound else "no"


def drift_verdict(variant: Variant, drift: float | None) -> str:
    """Expects almost no drift with error feedback, and a large one without it for coarse codecs."""
    if drift is None:
        return ""
    if variant.feedback:
        return "yes" if drift < DRIFT_WITH_FEEDBACK else "no"
    least = DRIFT_WITHOUT.get(variant.family)
    return "" if least is None else "yes" if drift >= least else "no"


def metric_at(run: dict, step: int) -> float:
    curve = run["curve"]
    return curve["metric"][curve["step"].index(step)]


def mean_curve(runs: Sequence[dict], key: str = "metric") -> dict[int, float]:
    """Returns, for each step, the mean over the runs that have a value for it."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for step, value in zip(run["curve"]["step"], run["curve"][key], strict=False):
            values.setdefault(step, []).append(value)
    return {step: statistics.fmean(of_step) for step, of_step in sorted(values.items())}


def first_step(task: Task, runs: Sequence[dict], target: float) -> int | None:
    """Returns the first step at which the mean curve reaches the target, or None."""
    for step, value in mean_curve(runs).items():
        if task.better * (value - target) >= 0:
            return step
    return None
