"""One rank of `tune`: measures messages over ringdist itself, repeatedly."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from torch_ringdist._credentials import has_key
from torch_ringdist._options import Options
from torch_ringdist._tune_fit import SMALL, Kind, Sample

# Variables that must not influence the measurement. The file of RINGDIST_COSTS may not exist yet.
SET_ASIDE = ("COSTS", "ALGORITHM", "SEGMENT_BYTES", "TRANSPORT", "DETERMINISTIC", "CODEC")
# Message sizes of streams. They include the smallest and the largest segment size.
_SIZES = (4 << 10, 16 << 10, 64 << 10, 252 << 10)
_CROWDS = (16 << 10, 252 << 10)
_STREAM_BYTES = 16 << 20  # limit for one call
_CALLS = 4  # calls of a stream in sequence; the intervals of their ends are measured
_PART_NS = 30e6  # limit for a part in one round
_MOST_CALLS = 200
_RUN = 16  # consecutive calls that are measured together
# Called after each part with its name and the elapsed share of the time.
Tell = Callable[[str, float], None]


def transport_between() -> str:
    """Returns the transport that ranks use between hosts by RINGDIST_TRANSPORT and
    has_key(); call it before set_aside()."""
    names = os.environ.get("RINGDIST_TRANSPORT", "").split(",")
    is_secure = has_key()  # ucx does not encrypt
    return "tcp" if is_secure or ("tcp" in names and "ucx" not in names) else "ucx"


def set_aside() -> None:
    """Unsets the variables of SET_ASIDE; call it before the first group is created."""
    for name in SET_ASIDE:
        os.environ.pop(f"RINGDIST_{name}", None)
    os.environ["RINGDIST_WARN_AFTER"] = "0"  # no warning while other hosts measure


@dataclass(frozen=True)
class _Part:
    kind: Kind
    bytes: int
    pairs: int


class Prober:
    """One rank's side of the measurement. It pairs the ranks, an even number: 0 with 1, 2 with 3,
    and so on.

    The ranks are inside one host, or one on each of two hosts. All ranks of the default group
    create it with the same arguments, because it creates groups. Those in `ranks` then call
    measure() with the same arguments.
    """

    def __init__(self, ranks: Sequence[int], transport: str, limit: timedelta) -> None:
        self._limit = limit
        self._ranks = list(ranks)
        self._pairs = len(ranks) // 2
        self._streams = {
            size: self._group(self._ranks, transport=transport, segment_bytes=size)
            for size in _SIZES
        }
        first = self._ranks[:2]
        self._one_hop = self._group(first, transport=transport, algorithm="one_shot")
        self._two_hops = self._group(first, transport=transport, algorithm="ring")
        self._group_of_all = self._streams[_SIZES[-1]]
        if dist.get_rank() in self._ranks:
            self._place = self._ranks.index(dist.get_rank())
            self._peer = self._ranks[self._place ^ 1]
            self._out = torch.ones(_STREAM_BYTES // 4, dtype=torch.float32, device="cpu")
            self._in = torch.ones(_STREAM_BYTES // 4, dtype=torch.float32, device="cpu")

    # Creates a group of `ranks` with those options; all ranks of the default group call it.
    def _group(self, ranks: Sequence[int], **options: Any) -> dist.ProcessGroup:
        given = Options(**options)
        return dist.new_group(
            list(ranks), timeout=self._limit, backend="ringdist", pg_options=given
        )

    def measure(self, seconds: float, tell: Tell) -> tuple[list[Sample], int]:
        """Returns the least times over as many rounds as fit in `seconds`, at least two, and the
        number of rounds."""
        parts = list(self._parts())
        counts = [self._count(part) for part in parts]
        best = [float("inf")] * len(parts)
        begin, rounds = time.monotonic(), 0
        while rounds < 2 or self._agreed(time.monotonic() - begin < seconds):
            for number, (part, count) in enumerate(zip(parts, counts, strict=True)):
                best[number] = min(best[number], self._slowest(self._time(part, count)))
                tell(
                    Sample(part.kind, part.bytes, 0).name,
                    min(1.0, (time.monotonic() - begin) / seconds),
                )
            rounds += 1
        return [
            Sample(part.kind, part.bytes, ns, part.pairs)
            for part, ns in zip(parts, best, strict=True)
        ], rounds

    def _parts(self) -> Iterator[_Part]:
        for size in _SIZES:
            yield _Part(Kind.STREAM, size, 1)
            yield _Part(Kind.BOTH, size, 1)
        if self._pairs > 1:
            for size in _CROWDS:
                yield _Part(Kind.CROWD, size, self._pairs)
        yield _Part(Kind.ONE_HOP, SMALL, 1)
        yield _Part(Kind.TWO_HOPS, SMALL, 1)

    def _count(self, part: _Part) -> int:
        """Returns how many messages or calls take the share of one part in a round; it also warms
        up."""
        streams = part.kind in (Kind.STREAM, Kind.BOTH, Kind.CROWD)
        tried = 16
        taken = self._slowest(self._time(part, tried))
        fitting = int(_PART_NS / (_CALLS if streams else 1) / taken)
        most = _STREAM_BYTES // part.bytes if streams else _MOST_CALLS
        return max(8, min(most, fitting))

    def _time(self, part: _Part, count: int) -> float:
        """Returns nanoseconds per message or call on a rank that can measure them, else 0."""
        dist.barrier(group=self._group_of_all)
        if self._place >= 2 * part.pairs:
            return 0.0
        if part.kind in (Kind.STREAM, Kind.BOTH, Kind.CROWD):
            return self._stream(part, count)
        return self._hops(self._one_hop if part.kind is Kind.ONE_HOP else self._two_hops, count)

    # Sends and receives `count` messages per call, and returns the least nanoseconds per message.
    def _stream(self, part: _Part, count: int) -> float:
        group = self._streams[part.bytes]
        out, into = (each[: part.bytes // 4 * count] for each in (self._out, self._in))
        sends = self._place % 2 == 0 or part.kind is not Kind.STREAM
        receives = self._place % 2 == 1 or part.kind is not Kind.STREAM
        ends = []
        for _ in range(_CALLS):
            works = []
            if sends:
                works.append(dist.isend(out, self._peer, group=group))
            if receives:
                works.append(dist.irecv(into, self._peer, group=group))
            for work in works:
                if work is not None:
                    work.wait()
            ends.append(time.perf_counter_ns())
        if not receives:
            return 0.0
        return min(later - end for end, later in itertools.pairwise(ends)) / count

    # Returns the nanoseconds of an all_reduce of a few bytes.
    @staticmethod
    def _hops(group: dist.ProcessGroup, count: int) -> float:
        tensor = torch.zeros(SMALL // 4, dtype=torch.float32, device="cpu")
        return _best_run(lambda: dist.all_reduce(tensor, group=group), count)

    # Returns the largest value over all ranks.
    def _slowest(self, ns: float) -> float:
        slowest = torch.tensor(ns, dtype=torch.float64, device="cpu")
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self._group_of_all)
        return float(slowest)

    def _agreed(self, mine: bool) -> bool:
        """Returns the decision of the first rank."""
        answer = torch.tensor(int(mine), dtype=torch.int64, device="cpu")
        dist.broadcast(answer, self._ranks[0], group=self._group_of_all)
        return bool(answer)


def _best_run(call: Callable[[], object], count: int) -> float:
    """Returns nanoseconds per call, the least over runs of several calls.

    A single call may find its message already there, so runs are measured as a whole.
    """
    best = float("inf")
    for _ in range(max(1, count // _RUN)):
        begin = time.perf_counter_ns()
        for _ in range(_RUN):
            call()
        best = min(best, (time.perf_counter_ns() - begin) / _RUN)
    return best
