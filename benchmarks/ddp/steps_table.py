"""Makes a table of step times relative to the first candidate."""

from __future__ import annotations

from benchmarks.ddp.ratios import median, paired_ratio

_LINE = "{:24} {:>6} {:>10} {:>10}   {}"


def table(result: dict) -> str:
    """Returns the table for the result of a Stepping run. Ratios pair steps of the same round."""
    told = result["candidates"]
    first = next(iter(told), "")
    lines = [_LINE.format("candidate", "steps", "minimum", "median", f"of {first}'s (95 %)")]
    for text, found in told.items():
        taken = [each for each in found["seconds"] if each is not None]
        ratio = str(paired_ratio(found["seconds"], told[first]["seconds"]))
        lines.append(
            _LINE.format(
                *(text, len(taken), f"{min(taken) * 1e3:.1f} ms"),
                *(f"{median(taken) * 1e3:.1f} ms", "1" if text == first else ratio),
            )
        )
    lines += [f"{text}: not in this version ({why})" for text, why in result["absent"].items()]
    return "\n".join(lines)
