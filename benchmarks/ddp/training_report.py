"""Makes tables and verdicts on time to accuracy in Markdown, from results of Training runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.ddp.candidates import Candidate
from benchmarks.ddp.links import link_text
from benchmarks.ddp.ratios import median

LAST = 11  # evaluations in an epoch; their mean is the final accuracy, because one is noisy
MAX_LOSS = 0.005  # accepted loss of final accuracy against uncompressed

# Limits by rate: our best time to the target relative to the best of TIME_RIVALS, and our step time
# relative to that of plain gloo.
TIME_TARGETS = {"1gbit": 0.45, "100mbit": 0.70}
STEP_TARGETS = {"1gbit": 0.30}
TIME_RIVALS = {"1gbit": ("fp16", "powersgd"), "100mbit": ("powersgd",)}


@dataclass(frozen=True)
class Run:
    """One candidate with one seed. Values are None if the target was not reached, or training did
    not finish."""

    step_seconds: float  # median after the first epoch
    steps: int | None  # steps to the target
    seconds: float | None
    final: float | None


@dataclass(frozen=True)
class Row:
    """One candidate at one rate, over all seeds."""

    rate: str
    candidate: str
    runs: tuple[Run, ...]

    @property
    def step_seconds(self) -> float:
        return statistics.fmean(run.step_seconds for run in self.runs)

    @property
    def seconds(self) -> float | None:
        return _mean([run.seconds for run in self.runs])

    @property
    def final(self) -> float | None:
        return _mean([run.final for run in self.runs])


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean, or None if a value is missing. A mean over successful runs only would be
    too good."""
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if len(there) == len(values) else None


def evaluate(result: dict) -> dict[str, Run]:
    """Returns the runs of one result, by candidate."""
    return {
        text: _evaluate(told, result["settings"]) for text, told in result["candidates"].items()
    }


def _evaluate(told: dict, settings: dict) -> Run:
    accuracies = told["accuracies"]
    steps = next((at for at, value in accuracies if value >= settings["target"]), None)
    final = None
    if not settings["to_target"]:
        last = [value for _, value in accuracies[-LAST:]]
        final = statistics.fmean(last)
    seconds = told["seconds"]
    return Run(
        median(seconds[LAST:] or seconds),
        steps,
        None if steps is None else sum(seconds[:steps]),
        final,
    )


def make_rows(results: Sequence[dict]) -> list[Row]:
    """Returns rows by rate and candidate, in the order of the results."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for result in results:
        for text, run in evaluate(result).items():
            runs.setdefault((result["settings"]["rate"], text), []).append(run)
    return [Row(rate, text, tuple(of_row)) for (rate, text), of_row in runs.items()]


def as_dict(row: Row) -> dict:
    derived = {name: getattr(row, name) for name in ("step_seconds", "seconds", "final")}
    return {**derived, **asdict(row)}


def markdown(results: Sequence[dict], tuning: Sequence[dict]) -> str:
    rows = make_rows(results)
    parts = []
    for rate in dict.fromkeys(row.rate for row in rows):
        of_rate = [row for row in rows if row.rate == rate]
        chosen = next((each for each in tuning if each["settings"]["rate"] == rate), None)
        parts += [f"### Links of {link_text(rate)}", "", *_table(of_rate), ""]
        absent = {
            k: v for r in results if r["settings"]["rate"] == rate for k, v in r["absent"].items()
        }
        parts += [f"- {text}: not in this version ({why})" for text, why in absent.items()]
        parts += [f"- {line}" for line in (*_tuned(chosen), *verdicts(of_rate))] + [""]
    settings = results[0]["settings"]
    seeds = sorted({result["settings"]["seed"] for result in results})
    about, commit = results[0]["machine"], results[0]["commit"]
    parts.append(
        f"{settings['hosts']} hosts on {about['cores']} cores of {about['cpu']}, torch "
        f"{about['torch']}, batch {settings['batch']} per rank, target accuracy "
        f"{settings['target']:.2f}, at most {settings['steps']} steps, seeds {seeds}, "
        f"{about['date'][:10]}, commit {commit}."
    )
    return "\n".join(parts) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| candidate | a step | steps to the target | seconds to the target | least .. most | "
        "final accuracy |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        steps = " / ".join("-" if run.steps is None else str(run.steps) for run in row.runs)
        times = [run.seconds for run in row.runs if run.seconds is not None]
        spread = f"{min(times):.1f} .. {max(times):.1f}" if times else "-"
        seconds = "not by all seeds" if row.seconds is None else f"{row.seconds:.1f}"
        final = "-" if row.final is None else f"{row.final:.2%}"
        lines.append(
            f"| {row.candidate} | {row.step_seconds * 1e3:.0f} ms | {steps} | {seconds} | "
            f"{spread} | {final} |"
        )
    return lines


def _tuned(tuning: dict | None) -> list[str]:
    if tuning is None:
        return []
    tried = []
    for text, run in evaluate(tuning).items():
        name = text.removeprefix("gloo+powersgd:")
        tried.append(f"{name} {'-' if run.seconds is None else f'{run.seconds:.1f} s'}")
    return [f"PowerSGD's rank@start, tuned once with another seed: {', '.join(tried)}"]


def tune(tuning: dict) -> str:
    """Returns the candidate that reaches the target first; if none does, the one with the shortest
    step."""
    runs = evaluate(tuning)
    return min(runs, key=lambda text: (runs[text].seconds or 1e9, runs[text].step_seconds))


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Returns a line per criterion of the comparison, for the rows of one rate."""
    rate = rows[0].rate
    parsed = {row.candidate: Candidate.parse(row.candidate) for row in rows}
    ours = [row for row in rows if parsed[row.candidate].ours]
    rivals = [
        row
        for row in rows
        if parsed[row.candidate].backend == "gloo"
        and parsed[row.candidate].hook in TIME_RIVALS.get(rate, ("fp16", "powersgd"))
    ]
    rival = _least(rivals)
    gloo = next((row for row in rows if row.candidate == "gloo"), None)
    lines = _best(_least(ours), rival, gloo)
    codecs = [row for row in ours if not _low_rank(row.candidate)]
    lines += [line for line in _best(_least(codecs), rival, gloo) if line not in lines]
    return lines + _losses(ours)


def _low_rank(candidate: str) -> bool:
    """Returns True for PowerSGD, which has no codec, and for "auto", which may choose it."""
    return candidate.startswith(("ringdist:powersgd", "ringdist:auto"))


def _best(fastest: Row | None, rival: Row | None, gloo: Row | None) -> list[str]:
    if fastest is None or fastest.seconds is None:
        return []
    lines, rate = [], fastest.rate
    if rival and rival.seconds:
        text = f"time to the target, {fastest.candidate} / {rival.candidate}"
        lines.append(_against(text, fastest.seconds / rival.seconds, TIME_TARGETS.get(rate)))
    if gloo:
        text = f"a step, {fastest.candidate} / gloo"
        ratio = fastest.step_seconds / gloo.step_seconds
        lines.append(_against(text, ratio, STEP_TARGETS.get(rate)))
    return lines


def _least(rows: Sequence[Row]) -> Row | None:
    """Returns the fastest row of those that reached the target with all seeds."""
    reached = [row for row in rows if row.seconds]
    return min(reached, key=lambda row: row.seconds or 0.0, default=None)


def _against(text: str, ratio: float, target: float | None) -> str:
    if target is None:
        return f"{text}: {ratio:.2f}"
    return f"{text}: {ratio:.2f} (limit {target:.2f}, {'met' if ratio <= target else 'not met'})"


def _losses(ours: Sequence[Row]) -> list[str]:
    plain = next((row for row in ours if row.candidate == "ringdist"), None)
    if plain is None or plain.final is None:
        return []
    gained = {row.candidate: row.final - plain.final for row in ours if row.final is not None}
    del gained[plain.candidate]
    return [
        f"final accuracy of {text} against uncompressed: {100 * gain:+.2f} points "
        f"(limit {-100 * MAX_LOSS}, {'met' if gain >= -MAX_LOSS else 'not met'})"
        for text, gain in gained.items()
    ]
