"""Draws the figures of `plan --save` with matplotlib, which nothing else here needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_ringdist import _plan_text
from torch_ringdist._output_paths import check_writable, replacing
from torch_ringdist._units import format_bytes, format_seconds

if TYPE_CHECKING:
    from torch_ringdist._plan import Question

_ENDINGS = (".png", ".pdf", ".svg")
_INSIDE = "0.55"
_BETWEEN = "tab:red"


def check(path: str) -> None:
    """Checks `path` before any work. Raises ValueError for a bad path, ImportError without
    matplotlib."""
    if os.path.splitext(path)[1].lower() not in _ENDINGS:
        raise ValueError(
            f"--save: expected a file that ends in {', '.join(_ENDINGS)}, got {path!r}"
        )
    check_writable(Path(path), "--save")
    try:
        import matplotlib
    except ImportError:
        raise ImportError("--save needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")


def draw(question: Question, answer: dict[str, Any], path: str) -> None:
    """Draws the times of the alternatives, and beside them the messages between ranks."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(13, 6), width_ratios=(1, 2), layout="constrained"
    )
    figure.suptitle(_plan_text.title(question, answer))
    _draw_times(left, answer)
    rounds = answer.get("rounds")
    if rounds and any(one["messages"] for one in rounds):
        _draw_arrows(right, question, rounds)
    else:
        _draw_bytes(right, question, rounds)
    _save(figure, path)


def _save(figure: Any, path: str) -> None:
    import matplotlib.pyplot as plt

    try:
        with replacing(Path(path)) as out:
            figure.savefig(out.name, dpi=130)
    except OSError as error:
        raise ValueError(f"--save: {path!r} cannot be written: {error.strerror}") from None
    finally:
        plt.close(figure)


def _draw_times(axes: Any, answer: dict[str, Any]) -> None:
    rows = [one for one in answer["alternatives"] if "seconds" in one]
    rows.sort(key=lambda one: -one["seconds"])
    names = [one["algorithm"] for one in rows]
    colors = ["tab:blue" if name == answer["algorithm"] else "0.75" for name in names]
    bars = axes.barh(names, [one["seconds"] * 1e3 for one in rows], color=colors)
    axes.bar_label(bars, [format_seconds(one["seconds"]) for one in rows], padding=3)
    axes.margins(x=0.25)
    axes.set_xlabel("predicted, ms; the choice is blue")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_arrows(axes: Any, question: Question, rounds: list[dict[str, Any]]) -> None:
    host_of = {rank: i for i, host in enumerate(question.hosts) for rank in host}
    for i, host in enumerate(question.hosts):
        axes.axvspan(host[0] - 0.45, host[-1] + 0.45, color="0.96" if i % 2 else "0.92")
        axes.text((host[0] + host[-1]) / 2, -0.15, f"host {i}", ha="center")
    for number, one in enumerate(rounds):
        for sender, receiver, _, _ in one["messages"]:
            inside = host_of[sender] == host_of[receiver]
            axes.annotate(
                "",
                (receiver, number + 0.9),
                (sender, number + 0.1),
                arrowprops={"arrowstyle": "->", "color": _INSIDE if inside else _BETWEEN},
            )
    axes.set_xlim(-0.7, question.ranks - 0.3)
    axes.set_ylim(len(rounds) + 0.1, -0.4)
    axes.set_xticks(range(question.ranks))
    axes.set_xlabel("rank; red: between hosts")
    every = max(1, len(rounds) // 10)
    numbers = range(0, len(rounds), every)
    axes.set_yticks([number + 0.5 for number in numbers], [str(number + 1) for number in numbers])
    axes.set_ylabel("round")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bytes(axes: Any, question: Question, rounds: list[dict[str, Any]] | None) -> None:
    axes.set_xlabel("round")
    encoded = ", before they are encoded" if question.codec else ""
    axes.set_ylabel(f"MiB that all ranks send{encoded}")
    if not rounds:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, _plan_text.without_rounds(rounds), ha="center", va="center")
        return
    numbers = range(1, len(rounds) + 1)
    scale = question.element_bytes / (1 << 20)
    inside = [one["elements_inside"] * scale for one in rounds]
    between = [one["elements_between"] * scale for one in rounds]
    width = 0.8 if len(rounds) < 100 else 1
    axes.bar(numbers, inside, width, label="inside hosts", color=_INSIDE)
    axes.bar(numbers, between, width, bottom=inside, label="between", color=_BETWEEN)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)


def draw_scale(
    question: Question, per_host: int, rows: list[tuple[int, dict[str, Any]]], path: str
) -> None:
    """Draws time over ranks with a line per algorithm; a cross marks the planner's choice."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    for i, first in enumerate(rows[0][1]["alternatives"]):
        points = [
            (size, answer["alternatives"][i]["seconds"])
            for size, answer in rows
            if "seconds" in answer["alternatives"][i]
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker=".", label=first["algorithm"])
    chosen = []
    for size, answer in rows:
        one = next(a for a in answer["alternatives"] if a["algorithm"] == answer["algorithm"])
        if "seconds" in one:
            chosen.append((size, one["seconds"]))
    if chosen:
        axes.plot(*zip(*chosen, strict=True), "x", color="black", label="the choice")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([size for size, _ in rows], [str(size) for size, _ in rows])
    axes.set_xlabel(f"ranks, {per_host} to a host")
    axes.set_ylabel("predicted seconds")
    axes.set_title(
        f"{question.operation} of {format_bytes(question.bytes)} {question.dtype}\n"
        f"costs: {question.costs_from}",
        fontsize=10,
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    _save(figure, path)
