"""Turns samples of the benchmarks into rows, a table, JSON and a picture."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

MIB = 1 << 20


@dataclass
class Times:
    """Nanoseconds of one thing at one size, over all repetitions; each is the slowest rank's."""

    minimum: float
    p10: float
    median: float
    p90: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Times:
        ordered = sorted(samples)
        p10, median, p90 = (ordered[int(q * (len(ordered) - 1))] for q in (0.1, 0.5, 0.9))
        return cls(ordered[0], p10, median, p90)

    def __str__(self) -> str:
        least, mid = duration(self.minimum), duration(self.median)
        return f"{least} / {mid} ({duration(self.p10)} .. {duration(self.p90)})"


@dataclass
class Row:
    """One size. `scale` and `tcp` are the bounds, where they were measured; `wire` is the bytes
    that leave each rank."""

    bytes: int
    repetitions: int
    ours: Times
    baseline: Times
    scale: Times | None
    tcp: Times | None
    target: float
    wire: int

    @property
    def ratio(self) -> float:
        return self.baseline.minimum / self.ours.minimum

    def as_dict(self) -> dict:
        return {**asdict(self), "ratio": self.ratio}


def duration(ns: float) -> str:
    if ns < 1e6:
        return f"{ns / 1e3:.1f} us" if ns < 1e5 else f"{ns / 1e3:.0f} us"
    return f"{ns / 1e6:.2f} ms" if ns < 1e8 else f"{ns / 1e6:.0f} ms"


def size_text(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_size(text: str) -> int:
    """A size on the command line, in bytes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper(), 1)
    number = text[:-1] if unit > 1 else text
    if not number.isdigit() or int(number) * unit % 4 or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a multiple of 4, as 8, 64K or 16M")
    return int(number) * unit


def machine() -> dict:
    """What a reader has to know to compare these figures with others."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "torch": metadata.version("torch"),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def environment(operation: str, world: int, ours: str, baseline: str) -> dict:
    names = {"operation": operation, "ours": ours, "baseline": baseline}
    return {**names, "world_size": world, **machine()}


_LINE = "{:>8}  {:>5}  {:>43}  {:>43}  {:>7}  {:>14}  {:>9}  {:>9}"


def header(about: dict) -> str:
    title = (
        f"{about['operation']} of fp32, {about['world_size']} ranks on {about['cores']} cores of "
        f"{about['cpu']}, torch {about['torch']}, load {about['load']} before the start\n"
        "times are minimum / median (10th .. 90th percentile), of the slowest rank; ratio is "
        f"{about['baseline']} / {about['ours']}, of the minima\n"
        "bounds: 'scale' multiplies the same bytes in place, 'tcp' sends the same bytes through "
        "plain loopback sockets\n"
    )
    titles = ("size", "times", about["ours"], about["baseline"], "ratio", "target", "scale", "tcp")
    return title + _LINE.format(*titles)


def line(row: Row) -> str:
    verdict = "ok" if row.ratio >= row.target else "below"
    return _LINE.format(
        size_text(row.bytes),
        row.repetitions,
        str(row.ours),
        str(row.baseline),
        f"{row.ratio:.2f}x",
        f">= {row.target:.2f} {verdict:5}",
        duration(row.scale.minimum) if row.scale else "-",
        duration(row.tcp.minimum) if row.tcp else "-",
    )


def footer(rows: Sequence[Row]) -> str:
    met = sum(row.ratio >= row.target for row in rows)
    text = f"{met} of {len(rows)} sizes reach their target"
    last = rows[-1]
    if last.scale and last.tcp:
        wire = last.wire / last.tcp.minimum
        text += (
            f"; at {size_text(last.bytes)}: scale {last.bytes / last.scale.minimum:.1f} GB/s per "
            f"rank, loopback TCP {wire:.2f} GB/s each way per rank"
        )
    return text


def save_json(path: Path, about: dict, rows: Sequence[Row]) -> None:
    """Times in nanoseconds."""
    path.write_text(json.dumps({**about, "rows": [row.as_dict() for row in rows]}, indent=2) + "\n")


def save_plot(path: Path, about: dict, rows: Sequence[Row]) -> None:
    """Minimum as a line, 10th to 90th percentile as a band. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    series = [
        (about["ours"], [r.ours for r in rows]),
        (about["baseline"], [r.baseline for r in rows]),
    ]
    sizes = [row.bytes for row in rows]
    for name, times in series:
        (drawn,) = axes.loglog(sizes, [t.minimum / 1e3 for t in times], marker="o", label=name)
        low, high = [t.p10 / 1e3 for t in times], [t.p90 / 1e3 for t in times]
        axes.fill_between(sizes, low, high, alpha=0.2, color=drawn.get_color())
    for name in ("scale", "tcp"):
        points = [(r.bytes, getattr(r, name).minimum / 1e3) for r in rows if getattr(r, name)]
        if points:
            axes.loglog(*zip(*points, strict=True), linestyle=":", label=f"bound: {name}")
    axes.set(
        xlabel="bytes",
        ylabel="microseconds",
        title=f"{about['operation']}, {about['world_size']} ranks",
    )
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
