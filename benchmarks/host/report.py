"""Combines blocks of samples into rows: one per operation, size and placement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import duration, size_text

TOGETHER = ("near", "far", "same")
PLACEMENTS = (*TOGETHER, "moved", "alone")


@dataclass
class Times:
    """Nanoseconds of one peer over all repetitions. Each sample is that of the slowest rank."""

    minimum: float
    median: float
    p99: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Times:
        ordered = sorted(samples)
        last = len(ordered) - 1
        return cls(ordered[0], ordered[last // 2], ordered[round(0.99 * last)])

    def __str__(self) -> str:
        return " / ".join(duration(ns) for ns in (self.minimum, self.median, self.p99))


@dataclass
class Row:
    operation: str
    bytes: int
    placement: str
    repetitions: int
    times: dict[str, Times]  # by peer

    def ratio(self, peer: str) -> str:
        """Returns "a / b": the peer's time relative to ours, for minima and medians."""
        ours, theirs = self.times.get("ringdist"), self.times.get(peer)
        if ours is None or theirs is None:
            return "-"
        return f"{theirs.minimum / ours.minimum:.2f} / {theirs.median / ours.median:.2f}"


def make_rows(blocks: Sequence[dict]) -> list[Row]:
    """Returns rows in the order of first samples of operations and sizes, and of PLACEMENTS."""
    samples: dict[tuple[str, int], dict[str, dict[str, list[int]]]] = {}
    for block in blocks:
        cell = samples.setdefault((block["operation"], block["bytes"]), {})
        for peer, taken in block["samples_ns"].items():
            cell.setdefault(block["placement"], {}).setdefault(peer, []).extend(taken)
    return [
        Row(
            operation,
            size,
            placement,
            len(next(iter(cell[placement].values()))),
            {peer: Times.of(taken) for peer, taken in cell[placement].items()},
        )
        for (operation, size), cell in samples.items()
        for placement in PLACEMENTS
        if placement in cell
    ]


def table(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Returns Markdown. Times are minimum / median / 99th percentile."""
    others = [peer for peer in ("gloo", "openmpi") if peer in peers]
    titles = ["operation", "size", "cores", *peers, *(f"{peer} by ours" for peer in others)]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        size = size_text(row.bytes) if row.bytes else "-"
        times = [str(row.times[peer]) if peer in row.times else "-" for peer in peers]
        ratios = [row.ratio(peer) for peer in others]
        cells = [row.operation, size, row.placement, *times, *ratios]
        lines.append("| " + " | ".join(cells) + " |")
    seen = {row.placement for row in rows}
    unseen = [name for name in TOGETHER if name not in seen]
    if unseen and seen != {"alone"}:
        lines += ["", f"Not seen: {', '.join(unseen)}."]
    return "\n".join(lines)


def save_json(path: Path, about: dict, rows: Sequence[Row]) -> None:
    """Writes JSON, with times in nanoseconds."""
    path.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")


def load_json(path: Path) -> tuple[dict, list[Row]]:
    about = json.loads(path.read_text())
    rows = [
        Row(**{**row, "times": {peer: Times(**times) for peer, times in row["times"].items()}})
        for row in about.pop("rows")
    ]
    return about, rows


def save_plot(path: Path, about: dict, rows: Sequence[Row]) -> None:
    """Plots medians against size with logarithmic axes and a panel per operation. The band begins
    at the minimum. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row.operation for row in rows if row.bytes))
    height = max(1, (len(names) + 1) // 2)
    figure, panels = pyplot.subplots(height, 2, figsize=(12, 4 * height), squeeze=False)
    for panel, name in zip(panels.flat, names, strict=False):
        most: dict[int, Row] = {}  # for each size, the row of the most frequent placement
        for row in rows:
            if row.operation == name and (
                row.bytes not in most or row.repetitions > most[row.bytes].repetitions
            ):
                most[row.bytes] = row
        for peer in about["peers"]:
            points = [(size, row.times[peer]) for size, row in most.items() if peer in row.times]
            sizes = [size for size, _ in points]
            medians = [times.median / 1e3 for _, times in points]
            style = ":" if peer in ("bound", "fake") else "-"
            (drawn,) = panel.loglog(sizes, medians, linestyle=style, marker=".", label=peer)
            low = [times.minimum / 1e3 for _, times in points]
            panel.fill_between(sizes, low, medians, alpha=0.15, color=drawn.get_color())
        panel.set(title=name, xlabel="bytes", ylabel="microseconds")
        panel.grid(True, which="major", alpha=0.3)
        panel.legend()
    for panel in list(panels.flat)[len(names) :]:
        panel.set_visible(False)
    figure.suptitle(f"{about['world_size']} ranks of one host")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
