"""Makes the critics' tables and verdicts in Markdown from results of Stepping runs.

If the study has the steps that a candidate needs, its cost is the time of a step times those steps.
Otherwise it is the time of a step alone. The reference is the faster of the uncompressed
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.ddp.candidates import Candidate
from benchmarks.ddp.links import ONE_HOST, link_text
from benchmarks.ddp.ratios import Ratio, median, paired_ratio
from benchmarks.ddp.study import Study

AUTO = "ringdist:auto"
PLAIN = "ringdist"
TOLERANCE = 1.03  # limit for cost of auto / cost of the best candidate


@dataclass(frozen=True)
class Cell:
    """One link, task and batch."""

    rate: str
    task: str
    batch: int
    seconds: dict[str, float]  # median of a step, by candidate
    factors: dict[str, float | None]  # steps relative to uncompressed; None without a study
    reference: str  # the faster uncompressed candidate
    fastest: str  # candidate with the least cost, without auto
    helps: Ratio | None  # best compressed cost / cost of the reference; None without one
    compressed: str | None  # best compressed candidate
    auto: Ratio | None  # cost of auto / cost of the fastest; None without auto
    auto_codec: str | None
    auto_plain: Ratio | None  # step of auto / step of uncompressed ringdist

    @property
    def compression_helps(self) -> bool:
        return self.helps is not None and self.helps.high < 1

    @property
    def auto_is_best(self) -> bool:
        return self.auto is not None and self.auto.low <= TOLERANCE


def make_cell(result: dict, study: Study) -> Cell:
    settings, told = result["settings"], result["candidates"]
    samples = {text: each["seconds"] for text, each in told.items()}
    seconds = {text: median(values) for text, values in samples.items()}
    auto_codec = told[AUTO]["codec"] if AUTO in told else None
    factors = {text: _more_steps(study, settings, _codec(text, auto_codec)) for text in told}

    def cost(text: str) -> float:
        return seconds[text] * (factors[text] or 1.0)

    def ratio(ours: str, other: str) -> Ratio:
        both = paired_ratio(samples[ours], samples[other])
        return both.scaled((factors[ours] or 1.0) / (factors[other] or 1.0))

    others = [text for text in told if text != AUTO]
    compressing = [text for text in others if Candidate.parse(text).compresses]
    reference = min((text for text in others if text not in compressing), key=cost)
    fastest = min(others, key=cost)
    compressed = min(compressing, key=cost, default=None)
    return Cell(
        settings["rate"],
        settings["task"],
        settings["batch"],
        seconds,
        factors,
        reference,
        fastest,
        None if compressed is None else ratio(compressed, reference),
        compressed,
        ratio(AUTO, fastest) if AUTO in told else None,
        auto_codec,
        paired_ratio(samples[AUTO], samples[PLAIN]) if AUTO in told and PLAIN in told else None,
    )


def _more_steps(study: Study, settings: dict, codecs: str) -> float | None:
    """Returns the largest factor of steps among the codecs, which belong to buckets of one
    model."""
    found = [study.more_steps(settings["task"], settings["batch"], c) for c in codecs.split(",")]
    known = [factor for factor in found if factor is not None]
    return max(known) if len(known) == len(found) else None


def _codec(text: str, auto_codec: str | None) -> str:
    """Returns the name of the codec in the study, or several names separated by commas."""
    candidate = Candidate.parse(text)
    if text == AUTO:
        return auto_codec or "none"
    if candidate.hook:
        return f"{candidate.hook}:{candidate.amount}" if candidate.amount else candidate.hook
    return candidate.codec or "none"


def markdown(results: Sequence[dict], study: Study) -> str:
    cells = [make_cell(result, study) for result in results]
    parts = []
    for task in dict.fromkeys(cell.task for cell in cells):
        parts += [f"### {TITLES[task]}", "", *_table([c for c in cells if c.task == task]), ""]
    absent = {text: why for result in results for text, why in result["absent"].items()}
    parts += [f"- {text}: not in this version ({why})" for text, why in absent.items()]
    parts += [f"- {line}" for line in verdicts(cells)]
    if any(factor is None for cell in cells for factor in cell.factors.values()):
        parts.append("- x ?: the steps to the target were not studied, and count as equal")
    about = results[0]["machine"]
    parts += [
        "",
        f"{_where(results[0]['settings'])} on {about['cores']} cores of {about['cpu']}, "
        f"torch {about['torch']}, {results[0]['settings']['rounds']} interleaved steps, "
        f"{about['date'][:10]}, commit {results[0]['commit']}.",
    ]
    return "\n".join(parts) + "\n"


def _where(settings: dict) -> str:
    count = settings["hosts"]
    return f"{count} ranks of one host" if settings["rate"] == ONE_HOST else f"{count} hosts"


TITLES = {
    "mlp5m": "Network of 5.2 million parameters on digits",
    "text": "Transformer of 0.12 million parameters on characters",
}


def _table(cells: Sequence[Cell]) -> list[str]:
    names = list(dict.fromkeys(text for cell in cells for text in cell.seconds))
    titles = ["link", "batch", *names, "compression helps", "auto takes", "auto / best"]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "--:|" * (len(titles) - 1)]
    for cell in cells:
        row = [link_text(cell.rate), str(cell.batch)]
        row += [_time(cell, name) for name in names]
        if cell.helps:
            row.append(f"{'yes' if cell.compression_helps else 'no'}, {cell.helps}")
        else:
            row.append("-")
        row += [cell.auto_codec or "-", str(cell.auto) if cell.auto else "-"]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _time(cell: Cell, name: str) -> str:
    """Returns milliseconds of a step. If the factor of steps is not 1, it follows."""
    if name not in cell.seconds:
        return "-"
    factor = cell.factors[name]
    text = f"{cell.seconds[name] * 1e3:.3g}"
    if factor is None:
        text += " x ?"
    elif factor != 1:
        text += f" x {factor:.2f}"
    return f"**{text}**" if name == cell.fastest else text


def verdicts(cells: Sequence[Cell]) -> list[str]:
    helps = sum(cell.compression_helps for cell in cells)
    lines = [f"compression helps in {helps} of {len(cells)}"]
    with_auto = [cell for cell in cells if cell.auto]
    if not with_auto:
        return [*lines, "auto: not measured"]
    good = sum(cell.auto_is_best for cell in with_auto)
    lines.append(f"auto as good as the best candidate in {good} of {len(cells)}")
    for cell in with_auto:
        if cell.rate in ("none", ONE_HOST) and cell.auto_plain:
            right = cell.auto_plain.low <= TOLERANCE and cell.auto_codec == "none"
            lines.append(
                f"{link_text(cell.rate)}, {cell.task}, batch {cell.batch}: auto takes "
                f"{cell.auto_codec}, step ratio {cell.auto_plain}, "
                f"{'as expected' if right else 'not as expected'}"
            )
    return lines
