"""Draws the results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.ddp.links import LINKS, ONE_HOST, link_text
from benchmarks.ddp.ratios import median


def draw_training(results: Sequence[dict], path: Path) -> None:
    """Draws accuracy over seconds, with a panel per rate, a colour per candidate and a line per
    seed."""
    rates = list(dict.fromkeys(result["settings"]["rate"] for result in results))
    figure, panels = pyplot.subplots(
        1, len(rates), figsize=(7 * len(rates), 5), squeeze=False, sharey=True
    )
    for axes, rate in zip(panels[0], rates, strict=True):
        of_rate = [result for result in results if result["settings"]["rate"] == rate]
        names = list(dict.fromkeys(name for result in of_rate for name in result["candidates"]))
        for number, name in enumerate(names):
            _draw_curves(axes, of_rate, name, f"C{number}" if number < 10 else "black")
        axes.axhline(of_rate[0]["settings"]["target"], linestyle=":", color="tab:gray")
        axes.set(xscale="log", xlabel="seconds of training", title=f"links of {link_text(rate)}")
        axes.set_ylim(0.8, 1.0)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=8, loc="upper left")
    panels[0][0].set_ylabel("held-out accuracy")
    _save(figure, path)


def _draw_curves(axes: Axes, results: Sequence[dict], name: str, color: str) -> None:
    label: str | None = name
    for result in results:
        told = result["candidates"].get(name)
        if told is None:
            continue
        at = [0.0, *accumulate(told["seconds"])]
        points = [(at[steps], accuracy) for steps, accuracy in told["accuracies"]]
        axes.plot(*zip(*points, strict=True), color=color, label=label, linewidth=1)
        label = None  # later lines get no entry in the legend


def draw_stepping(results: Sequence[dict], path: Path) -> None:
    """Draws the median step time over links, with a row of panels per task and a panel per
    batch."""
    tasks = list(dict.fromkeys(result["settings"]["task"] for result in results))
    batches = sorted({result["settings"]["batch"] for result in results})
    figure, panels = pyplot.subplots(
        len(tasks), len(batches), figsize=(4.5 * len(batches), 4 * len(tasks)), squeeze=False
    )
    for line, task in zip(panels, tasks, strict=True):
        for axes, batch in zip(line, batches, strict=True):
            of_panel = {
                result["settings"]["rate"]: result["candidates"]
                for result in results
                if (result["settings"]["task"], result["settings"]["batch"]) == (task, batch)
            }
            _draw_links(axes, of_panel)
            axes.set(yscale="log", title=f"{task}, batch {batch}", ylabel="a step, ms")
    panels[0][0].legend(fontsize=8)
    _save(figure, path)


def _draw_links(axes: Axes, by_rate: dict[str, dict]) -> None:
    rates = [rate for rate in (*LINKS, ONE_HOST) if rate in by_rate]
    names = dict.fromkeys(name for rate in rates for name in by_rate[rate])
    for name in names:
        points = [
            (link_text(rate), 1e3 * median(by_rate[rate][name]["seconds"]))
            for rate in rates
            if name in by_rate[rate]
        ]
        axes.plot(*zip(*points, strict=True), marker="o", label=name, linewidth=1)
    axes.grid(True, which="major", alpha=0.3)


def _save(figure: pyplot.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
