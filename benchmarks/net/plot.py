"""Draws results of the allreduce benchmark: `python -m benchmarks.net.plot FILE.json ...`"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.net.variants import TCP
from benchmarks.report import size_text


def draw(path: Path) -> list[Path]:
    """Writes one picture per size next to the JSON file. Returns their paths."""
    about = json.loads(path.read_text())
    sizes = dict.fromkeys(row["bytes"] for row in about["rows"])
    written = []
    for size in sizes:
        rows = [row for row in about["rows"] if row["bytes"] == size]
        picture = path.with_name(f"{path.stem}-{size_text(size).replace(' ', '')}.png")
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 1.5 + 0.4 * len(rows)))
        _draw_times(left, rows)
        _draw_bytes(right, rows)
        links = "unshaped links" if about["rate"] == "none" else f"links of {about['rate']}"
        title = (
            f"allreduce of {size_text(size)} {about['dtype']}, {about['hosts']} hosts on {links}"
        )
        figure.suptitle(title)
        figure.tight_layout()
        figure.savefig(picture, dpi=120)
        pyplot.close(figure)
        written.append(picture)
    return written


def _draw_times(axes: Axes, rows: list[dict]) -> None:
    """Draws medians as bars, and quartiles as whiskers."""
    names = [row["variant"] for row in rows]
    times = [row["times"] for row in rows]
    medians = [t["median"] / 1e6 for t in times]
    below = [(t["median"] - t["lower"]) / 1e6 for t in times]
    above = [(t["upper"] - t["median"]) / 1e6 for t in times]
    colors = ["tab:gray" if name == TCP else "tab:blue" for name in names]
    bars = axes.barh(names, medians, xerr=(below, above), capsize=3, color=colors)
    axes.bar_label(bars, [_label(row) for row in rows], padding=6, fontsize=8)
    for row, median in zip(rows, medians, strict=True):
        if row["variant"] == TCP:
            axes.axvline(median, linestyle=":", color="tab:gray")
    axes.set(xlabel="milliseconds, median and quartiles")
    axes.margins(x=0.3)  # room for the labels
    axes.invert_yaxis()


def _label(row: dict) -> str:
    parts = [f"{row['times']['median'] / 1e6:.3g} ms"]
    if row["speedup"] is not None:
        parts.append(f"{row['speedup']:.2f}x")
    return ", ".join(parts)


def _draw_bytes(axes: Axes, rows: list[dict]) -> None:
    names = [row["variant"] for row in rows]
    sent = [row["sent"] / 1e6 for row in rows]
    bars = axes.barh(names, sent, color="tab:green", label="measured")
    axes.bar_label(bars, [f"{amount:.3g} MB" for amount in sent], padding=6, fontsize=8)
    axes.margins(x=0.3)
    known = [row for row in rows if row["expected"] is not None]
    axes.scatter(
        [row["expected"] / 1e6 for row in known],
        [row["variant"] for row in known],
        marker="|",
        s=200,
        color="black",
        zorder=3,
        label="expected",
    )
    axes.set(xlabel="MB sent per host and operation")
    axes.legend(fontsize=8, loc="lower right")
    axes.invert_yaxis()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(*draw(Path(argument)), sep="\n")
