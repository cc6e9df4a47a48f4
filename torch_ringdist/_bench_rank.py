"""One rank of ``ringdist bench``: checks and times an operation at each size."""

from __future__ import annotations

import math
import socket
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch.distributed as dist

from torch_ringdist._bench_case import Case, whole_bytes
from torch_ringdist._codecs import available_mib
from torch_ringdist._errors import CommandError
from torch_ringdist._units import format_bytes


def agreed(work: Callable[[], Any], combine: Callable[[list[Any]], Any] = list) -> Any:
    """Runs `work` and returns `combine` of the results of all ranks. All ranks call it. If one
    fails, raises CommandError on all of them."""
    try:
        mine = (work(), "")
    except Exception as error:  # any kind: the other ranks need it
        mine = (None, f"rank {dist.get_rank()} ({socket.gethostname()}): {error}")
    found: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(found, mine)
    except RuntimeError as error:  # a rank has ended, or did not call it within the timeout
        raise CommandError(mine[1] or f"rank {dist.get_rank()}: {error}") from error
    for _, problem in found:
        if problem:
            raise CommandError(problem)
    return combine([result for result, _ in found])


def counts(args: Namespace, ranks: int) -> list[int]:
    """Returns Case.count for each size. It is rounded down, but at least 1."""
    if args.operation == "barrier":
        return [0]
    size, found = args.min_bytes, []
    while size <= args.max_bytes:
        found.append(max(1, size // whole_bytes(args, 1, ranks)))
        size *= args.factor
    return list(dict.fromkeys(found))  # small sizes may be equal now


def measure(args: Namespace, hosts: list[str]) -> Iterator[dict[str, Any]]:
    """Yields a row per size, the same on all ranks.

    Args:
        args: the options of the command.
        hosts: the host of each rank.

    Raises:
        CommandError: a rank has failed. It is raised on all ranks.
    """
    rank, ranks = dist.get_rank(), len(hosts)
    for count in counts(args, ranks):
        held: list[Case] = []  # one size at a time
        agreed(partial(_allocate, held, hosts.count(hosts[rank]), args, count, rank, ranks))
        found = agreed(partial(_check, held[0]), _summary)
        seen = [found["ns"]]
        if warmup := _fitting(args.warmup, args.seconds, seen):
            seen = agreed(partial(_times, held[0], warmup), _slowest)
        iterations = _fitting(args.iterations, args.seconds, seen)
        times = agreed(partial(_times, held[0], iterations), _slowest)
        yield _row(held[0], times, found)


def _allocate(
    held: list[Case], local: int, args: Namespace, count: int, rank: int, ranks: int
) -> None:
    """Appends the case. Raises MemoryError if the `local` ranks of this host need more memory than
    it has, because the kernel would kill one of them."""
    # Input and output, and about the same again to fill and to check them.
    needed = 4 * local * whole_bytes(args, count, ranks)
    if needed > (available := available_mib() << 20) and args.device == "cpu":
        raise MemoryError(
            f"{count} elements of {args.dtype} need about {format_bytes(needed)} on this host, "
            f"which has {format_bytes(available)}; give a smaller --max-bytes"
        )
    held.append(Case(args, count, rank, ranks))


def _check(case: Case) -> tuple[float, ...]:
    """Compares the result of a first call, and returns also the time of a second one."""
    case.refill()
    case.run()
    return *case.compare(), _times(case, 1)[0]


# Sums up the checks of all ranks.
def _summary(found: list[tuple[float, ...]]) -> dict[str, Any]:
    wrong, error, square, times = zip(*found, strict=True)
    relative_error = math.sqrt(sum(error) / (sum(square) or 1))
    return {"wrong": int(sum(wrong)), "relative_error": relative_error, "ns": max(times)}


def _fitting(wanted: int, seconds: float, seen: list[int]) -> int:
    """Returns how many of the calls fit into the seconds, at least one. `seen` has nanoseconds of
    some calls."""
    return min(wanted, max(1, int(seconds * 1e9 / statistics.median(seen))))


def _times(case: Case, iterations: int) -> list[int]:
    """Returns the nanoseconds of each call on this rank."""
    times = []
    for _ in range(iterations):
        if "reduces" in case.traits:  # else sums of sums would overflow
            case.refill()
        begin = time.perf_counter_ns()
        case.run()
        times.append(time.perf_counter_ns() - begin)
    return times


# Returns the time of the slowest rank in each iteration.
def _slowest(times: list[list[int]]) -> list[int]:
    return [max(of_ranks) for of_ranks in zip(*times, strict=True)]


def _row(case: Case, times: list[int], found: dict[str, Any]) -> dict[str, Any]:
    mean, has_data = statistics.fmean(times), case.count > 0
    speed = case.bytes / mean  # bytes per nanosecond are GB/s
    bus = case.factor * (case.ranks - 1) / case.ranks if case.factor else 1
    return {
        "size_bytes": case.bytes,
        "count": case.count,
        "dtype": case.args.dtype if has_data else None,
        "reduce_op": case.args.reduce_op or "sum" if "reduces" in case.traits else None,
        "root": case.root if "rooted" in case.traits else None,
        "time_us": mean / 1e3,
        "p50_us": statistics.median(times) / 1e3,
        "p99_us": sorted(times)[math.ceil(0.99 * len(times)) - 1] / 1e3,
        "algbw_gb_per_s": speed if has_data else None,
        "busbw_gb_per_s": speed * bus if has_data else None,
        "wrong": found["wrong"] if has_data and not case.args.codec else None,
        "relative_error": found["relative_error"] if case.args.codec else None,
        "iterations": len(times),
    }
