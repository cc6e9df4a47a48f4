"""Draws the pictures of the study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.compression_study.analysis import Results, Row, mean_curve
from benchmarks.compression_study.plan import Cell
from benchmarks.compression_study.tasks import TASKS
from benchmarks.compression_study.variants import UNCOMPRESSED


def draw(stem: Path, results: Results, rows: Sequence[Row]) -> dict[str, Path]:
    """Writes STEM-difference.png and so on. Returns the paths by subject."""
    cells = list(dict.fromkeys(cell for cell, _ in results))
    written = {}
    for kind, fill in (("difference", _differences), ("curves", _curves), ("drift", _drift)):
        figure, axes = _grid(len(cells))
        for cell, place in zip(cells, axes, strict=True):
            fill(place, cell, results, rows)
            place.set_title(f"{cell.task}, {cell.optimiser}, batch {cell.batch}")
        figure.tight_layout()
        path = stem.with_name(f"{stem.name}-{kind}.png")
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        written[kind] = path
    return written


def _grid(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(2, count)
    lines = math.ceil(count / columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(6.5 * columns, 4.5 * lines))
    flat = [axes] if count == 1 else list(axes.flat)
    for spare in flat[count:]:
        spare.set_axis_off()
    return figure, flat[:count]


def _differences(axes: Axes, cell: Cell, _: Results, rows: Sequence[Row]) -> None:
    """Draws paired differences with their intervals. Differences in the grey area count as
    equal."""
    task = TASKS[cell.task]
    own = [r for r in rows if cell.owns(r.task, r.optimiser, r.batch)]
    shown = [r for r in own if r.variant != UNCOMPRESSED and r.difference is not None]
    for place, row in enumerate(shown):
        error = None
        if row.low is not None and row.high is not None:
            error = [[row.difference - row.low], [row.high - row.difference]]
        axes.errorbar(row.difference, place, xerr=error, fmt="o", capsize=3, color="tab:blue")
    axes.axvspan(-task.bound, task.bound, color="lightgray", zorder=0)
    axes.axvline(0, color="gray", linewidth=0.8)
    axes.set_yticks(range(len(shown)), [row.variant for row in shown])
    axes.invert_yaxis()
    # With a linear scale, a variant that fails would leave no room for the others.
    axes.set_xscale("symlog", linthresh=2 * task.bound)
    axes.set_xlabel(f"difference to uncompressed at {cell.steps} steps, {task.unit}")


def _curves(axes: Axes, cell: Cell, results: Results, _: Sequence[Row]) -> None:
    task = TASKS[cell.task]
    for (of_cell, variant), runs in results.items():
        if of_cell == cell:
            curve = mean_curve(runs, "metric" if task.better < 0 else "loss")
            style = "--" if "no-ef" in variant else "-"
            axes.plot(curve.keys(), curve.values(), style, label=variant, linewidth=1)
    axes.set(xlabel="step", ylabel="validation loss" if task.better < 0 else "training loss")
    axes.set_yscale("log")
    axes.legend(fontsize=7, ncols=2)


def _drift(axes: Axes, cell: Cell, results: Results, _: Sequence[Row]) -> None:
    for (of_cell, variant), runs in results.items():
        if of_cell == cell and (curve := mean_curve(runs, "drift")):
            style = "--" if "no-ef" in variant else "-"
            axes.plot(curve.keys(), curve.values(), style, label=variant)
    axes.axhline(1e-6, color="gray", linewidth=0.8)
    axes.set(xlabel="step", ylabel="cumulative drift", yscale="log")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
