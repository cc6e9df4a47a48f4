"""Draws times of operations: `python -m benchmarks.net.operations_plot FILE.json ...`"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.report import size_text

COLUMNS = 3


def draw(path: Path) -> list[Path]:
    """Writes pictures next to the JSON file: times, and shares of the link for sizes that have
    them."""
    about = json.loads(path.read_text())
    rows = sorted(about["rows"], key=lambda row: row["bytes"])
    written = [_draw(path, "times", rows, _draw_times)]
    if shares := [row for row in rows if row["of_wire"]]:
        written.append(_draw(path, "share", shares, _draw_shares))
    return written


def _draw(path: Path, what: str, rows: list[dict], panel_of) -> Path:
    names = list(dict.fromkeys(row["operation"] for row in rows))
    height = -(-len(names) // COLUMNS)
    figure, panels = pyplot.subplots(
        height, COLUMNS, figsize=(5 * COLUMNS, 0.6 + 3.6 * height), squeeze=False
    )
    for panel, name in zip(panels.flat, names, strict=False):
        panel_of(panel, [row for row in rows if row["operation"] == name])
        panel.set_title(name)
    for panel in list(panels.flat)[len(names) :]:
        panel.set_visible(False)
    first = rows[0]
    figure.suptitle(f"hosts x ranks {first['layout']}, links of {first['rate']}")
    figure.tight_layout()
    picture = path.with_name(f"{path.stem}-{what}.png")
    figure.savefig(picture, dpi=100)
    pyplot.close(figure)
    return picture


def _draw_times(panel: Axes, rows: list[dict]) -> None:
    """Draws medians against size with logarithmic axes. The band begins at the minimum."""
    for variant, of_variant in _by_variant(rows).items():
        sizes = [row["bytes"] for row in of_variant]
        medians = [row["median"] / 1e6 for row in of_variant]
        (line,) = panel.loglog(sizes, medians, marker=".", label=variant)
        low = [row["minimum"] / 1e6 for row in of_variant]
        panel.fill_between(sizes, low, medians, alpha=0.15, color=line.get_color())
    plain = {row["bytes"]: row for row in rows if row["of_wire"] and ":" not in row["variant"]}
    if len(plain) > 1:
        least = [row["least_bytes"] / row["wire"] / 1e6 for row in plain.values()]
        panel.loglog(list(plain), least, ":", color="gray", label="wire")
    panel.set(xlabel="bytes of the longest tensor", ylabel="milliseconds")
    panel.grid(True, which="major", alpha=0.3)
    panel.legend(fontsize=8)


def _draw_shares(panel: Axes, rows: list[dict]) -> None:
    """Draws a group of bars for each size. The value 1 is the speed of plain sockets."""
    sizes = list(dict.fromkeys(row["bytes"] for row in rows))
    variants = _by_variant(rows)
    width = 0.8 / len(variants)
    for number, (variant, of_variant) in enumerate(variants.items()):
        places = [sizes.index(row["bytes"]) + number * width - 0.4 for row in of_variant]
        bars = panel.bar(
            places, [row["of_wire"] for row in of_variant], width, align="edge", label=variant
        )
        panel.bar_label(bars, fmt="%.2f", fontsize=6)
    panel.axhline(1, linestyle=":", color="gray")
    panel.set_xticks(range(len(sizes)), [size_text(size) for size in sizes])
    panel.set(xlabel="bytes of the longest tensor", ylabel="of the wire")
    panel.legend(fontsize=8, loc="lower right")


def _by_variant(rows: list[dict]) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for row in rows:
        found.setdefault(row["variant"], []).append(row)
    return found


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(*draw(Path(argument)), sep="\n")
