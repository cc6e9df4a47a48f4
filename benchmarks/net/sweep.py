"""Runs all operations over layouts, rates and sizes, with one launch for each.

Results are kept, so that a later start continues a stopped run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import kept, ranks
from benchmarks.host.launch import has_openmpi
from benchmarks.host.operations import OPERATIONS
from benchmarks.net import rows as report
from benchmarks.net.hosts import RATE, Hosts
from benchmarks.net.job import Job
from benchmarks.net.layout import Layout
from benchmarks.net.progress import Bar
from benchmarks.net.start import start_ranks
from benchmarks.net.variants import OPENMPI, Variant
from benchmarks.report import parse_size, size_text

# Paths that results depend on. A change of them discards results.
MEASURED = (
    *("csrc", "torch_ringdist", "cmake", "requirements.txt"),
    *("benchmarks/net", "benchmarks/host", "benchmarks/ranks.py"),
)
CONGESTION = "cubic"  # default of TCP's congestion control
SIZES = ("8", "64K", "1M", "16M", "64M")
# The largest size still takes less than a second per allreduce.
SIZES_OF_SLOW_LINKS = ("8", "64K", "1M", "4M")


class RunError(RuntimeError):
    """The ranks failed; the text has the place of their logs."""


def usual_sizes(rate: str) -> list[int]:
    slow = rate.endswith(("kbit", "mbit"))
    return [parse_size(size) for size in (SIZES_OF_SLOW_LINKS if slow else SIZES)]


def jobs_of(args: argparse.Namespace, variants: tuple[str, ...]) -> list[Job]:
    return [
        Job(
            *(rate, args.congestion, layout.text, size),
            tuple(args.operations or OPERATIONS),
            variants,
            args.seconds,
            args.rounds,
        )
        for rate in args.rate
        for layout in args.layouts
        for size in args.sizes or usual_sizes(rate)
    ]


def who_can(variants: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Returns the variants that can take part, and reasons for the others."""
    if has_openmpi():
        return tuple(variants), {}
    why = "not installed: pip install openmpi mpi4py"
    absent = {text: why for text in variants if Variant.parse(text).backend == OPENMPI}
    return tuple(text for text in variants if text not in absent), absent


def sweep(args: argparse.Namespace) -> None:
    """Measures missing results, prints each table, and writes JSON and pictures. Raises
    RunError."""
    variants, absent = who_can(args.variants)
    for text, why in absent.items():
        print(f"{text}: left out, {why}", flush=True)
    if not variants:
        raise RunError("no variant can take part")
    store = kept.Kept(args.out / "cells", kept.commit(MEASURED), args.fresh)
    jobs = jobs_of(args, variants)
    results, measured, begin = [], 0, time.monotonic()
    for number, job in enumerate(jobs):
        found = store.find(job)
        title = f"[{number + 1}/{len(jobs)}] {job.layout}, {job.rate}, {size_text(job.bytes)}"
        if found is None:
            left = ""
            if measured:
                each = (time.monotonic() - begin) / measured
                left = f", about {each * (len(jobs) - number) / 60:.0f} min to go"
            print(f"{title}: measuring{left}", file=sys.stderr, flush=True)
            found = store.keep(job, measure(job, args.out / "logs" / job.name, title))
            measured += 1
        else:
            print(f"{title}: is there", file=sys.stderr, flush=True)
        results.append(found)
        print(report.table(report.rows_of(found)), flush=True)
    write(args.out, results, absent)


def measure(job: Job, logs: Path, title: str) -> dict:
    """Returns the results of the ranks. Raises RunError."""
    hosts = Hosts(job.ranks.hosts, job.rate, job.congestion)
    words = ["-m", "benchmarks.net.operations", "--job", job.text()]
    return on_hosts(hosts, job.ranks, words, logs, title, job.needs_mpi)


def on_hosts(
    hosts: Hosts,
    layout: Layout,
    words: Sequence[str],
    logs: Path,
    title: str,
    with_mpi: bool = False,
    variables: Mapping[str, str] | None = None,
) -> dict:
    """Creates the hosts, runs the command on all ranks with paths of their files, and returns the
    results of rank 0. Raises RunError."""
    with tempfile.TemporaryDirectory() as folder, hosts:
        progress, answer = Path(folder, "progress"), Path(folder, "answer")
        barrier = Path(folder, "barrier")
        barrier.write_bytes(bytes(ranks.SLOT * layout.world))
        command = [
            *(*words, "--barrier", str(barrier)),
            *("--progress", str(progress), "--json", str(answer)),
        ]
        with Bar(progress, title) as bar:
            status = start_ranks(hosts, layout, command, logs, with_mpi, bar.show, variables)
        if status:
            raise RunError(f"{title}: status {status}; see above and {logs}")
        return json.loads(answer.read_text())


def write(out: Path, results: list[dict], absent: dict[str, str]) -> None:
    """Writes a file and two pictures for each layout, rate and congestion control."""
    from benchmarks.net.operations_plot import draw  # matplotlib takes a second to load

    groups: dict[str, list[dict]] = {}
    for result in results:
        settings = result["settings"]
        name = f"{settings['layout']}-{settings['rate']}"
        if settings["congestion"] != CONGESTION:
            name += f"-{settings['congestion']}"
        groups.setdefault(name, []).append(result)
    print()
    for name, of_group in groups.items():
        path = out / f"operations-{name}.json"
        rows = [row for result in of_group for row in report.rows_of(result)]
        report.save(path, of_group[-1]["machine"], absent, rows)
        print(f"written: {', '.join(map(str, (path, *draw(path))))}")


def parse_rate(text: str) -> str:
    if not RATE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected none, or a rate as 100mbit or 1gbit")
    return text


def parse_layout(text: str) -> Layout:
    try:
        return Layout.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
