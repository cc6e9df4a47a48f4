"""Selects the runs of a comparison, and their order."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.ddp import plot, stepping_report, steps_table, training_report
from benchmarks.ddp.cells import Cells
from benchmarks.ddp.links import LINKS, ONE_HOST, link_text, make_hosts
from benchmarks.ddp.settings import Settings, Stepping, Training
from benchmarks.ddp.study import Study
from benchmarks.net.hosts import Hosts

TUNED = "gloo+powersgd"  # rank and start come from tuning
TUNING_SEED = 1000
TUNING = tuple(f"{TUNED}:{rank}@{start}" for rank in (1, 2, 4) for start in (2, 5, 10))

TRAINING = (
    *("gloo", "gloo+fp16", TUNED, "gloo+local:4@11"),
    *("ringdist", "ringdist:int8", "ringdist:int4", "ringdist:onebit"),
    *("ringdist:powersgd:4", "ringdist:auto"),
)
CRITICS = (
    *("gloo", "gloo+fp16", "ringdist"),
    *("ringdist:int8", "ringdist:int4", "ringdist:onebit", "ringdist:powersgd:4", "ringdist:auto"),
)
STEPS = ("gloo", "ringdist", "ringdist:int4")
# Candidates that are timed in few steps, because a step takes seconds and their result is certain.
RARELY = {"100mbit": ("gloo",)}


class Runner:
    """Executes runs one after the other. Hosts are kept while the rate does not change."""

    def __init__(self, cells: Cells, total: int) -> None:
        self._cells, self._total = cells, total
        self._stack = contextlib.ExitStack()
        self._hosts: Hosts | None = None
        self._of: tuple[str, int, int] | None = None  # rate, ranks, ranks per host
        self._number, self._measured, self._start = 0, 0, time.monotonic()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, settings: Settings) -> dict:
        self._number += 1
        found = self._cells.find(settings)
        left = self._remaining()
        state = "is there" if found else f"measuring{left}"
        print(f"[{self._number}/{self._total}] {settings.name}: {state}", flush=True)
        if found:
            return found
        result = self._cells.run(settings, self._over(settings))
        self._measured += 1
        return result

    def _over(self, settings: Settings) -> Hosts:
        per_host = settings.per_host if isinstance(settings, Stepping) else 1
        wanted = (settings.rate, settings.hosts, per_host)
        if self._hosts is None or self._of != wanted:
            self._stack.close()
            self._hosts = self._stack.enter_context(make_hosts(*wanted))
            self._of = wanted
        return self._hosts

    def _remaining(self) -> str:
        if not self._measured:
            return ""
        each = (time.monotonic() - self._start) / self._measured
        return f", about {each * (self._total - self._number + 1) / 60:.0f} min to go"


def training(cells: Cells, args: argparse.Namespace) -> None:
    """Measures time to accuracy at each rate with each seed, and prints the tables."""
    runs = list(_training_runs(args))
    results, tuning = [], []
    rates = list(dict.fromkeys(run.rate for run in runs))
    tunes = any(TUNED in run.candidates for run in runs)
    with Runner(cells, len(runs) + tunes * len(rates)) as run:
        for rate in rates:
            of_rate = [each for each in runs if each.rate == rate]
            if tunes:
                options = TUNING[-1:] if args.quick else TUNING
                first = replace(of_rate[0], seed=TUNING_SEED, candidates=options, to_target=True)
                tuning.append(run(first))
                best = training_report.tune(tuning[-1])
                of_rate = [_with(each, best) for each in of_rate]
            results += [run(each) for each in of_rate]
    report = training_report.markdown(results, tuning)
    picture = cells.folder / "training.png"
    plot.draw_training(results, picture)
    print(f"\n{report}\npicture: {picture}")


def _with(settings: Training, tuned: str) -> Training:
    names = tuple(tuned if name == TUNED else name for name in settings.candidates)
    return replace(settings, candidates=names)


def _training_runs(args: argparse.Namespace) -> Iterator[Training]:
    candidates = tuple(args.candidates or TRAINING)
    rates: Sequence[str] = args.rate or ("1gbit", "100mbit")
    seeds, steps = args.seeds, args.steps
    if args.quick:
        rates, seeds, steps = rates[:1], seeds[:1], min(steps, 22)
    for rate in rates:
        for seed in seeds:
            yield Training(
                rate,
                seed,
                candidates,
                steps,
                args.target,
                rate in args.to_target,
                hosts=args.hosts,
            )


def critics(cells: Cells, args: argparse.Namespace, study: Study) -> None:
    """Measures step times of every link, batch and task, and prints the tables."""
    candidates = tuple(args.candidates or CRITICS)
    rates: Sequence[str] = args.rate or (("none",) if args.quick else (*LINKS, ONE_HOST))
    few = {"rounds": 4, "warm_up": 2, "auto_warm_up": 5} if args.quick else {}
    runs = [
        Stepping(
            rate, task, batch, candidates, rarely=RARELY.get(rate, ()), hosts=args.hosts, **few
        )
        for rate in (rates[:1] if args.quick else rates)
        for task in args.task
        for batch in (args.batch[:1] if args.quick else args.batch)
    ]
    with Runner(cells, len(runs)) as run:
        results = []
        for settings in runs:
            results.append(run(settings))
            cell = stepping_report.make_cell(results[-1], study)
            times = ", ".join(f"{k} {v * 1e3:.0f}" for k, v in cell.seconds.items())
            print(f"    {link_text(settings.rate)}, a step in ms: {times}", flush=True)
    picture = cells.folder / "critics.png"
    plot.draw_stepping(results, picture)
    for part in _tables(results):
        print(f"\n{stepping_report.markdown(part, study)}")
    print(f"picture: {picture}")


def steps(cells: Cells, args: argparse.Namespace) -> None:
    """Measures steps over hosts of several ranks in turns. Prints each candidate's time relative to
    the first."""
    candidates = tuple(args.candidates or STEPS)
    few = {"rounds": 4, "warm_up": 2, "auto_warm_up": 5} if args.quick else {"rounds": args.rounds}
    runs = [
        Stepping(
            *(rate, "mlp5m", args.batch, candidates),
            **few,
            hosts=args.hosts * args.per_host,
            per_host=args.per_host,
            kind="steps",
        )
        for rate in args.rate or ("1gbit",)
    ]
    with Runner(cells, len(runs)) as run:
        for settings in runs:
            result = run(settings)
            where = f"{args.hosts} hosts of {args.per_host}, {link_text(settings.rate)}"
            print(f"\n{where}, batch {args.batch}\n{steps_table.table(result)}", flush=True)


def _tables(results: list[dict]) -> Iterator[list[dict]]:
    """Yields the results of the critics' links, then those of one host, which answer another
    question."""
    for alone in (False, True):
        part = [each for each in results if (each["settings"]["rate"] == ONE_HOST) is alone]
        if part:
            yield part
