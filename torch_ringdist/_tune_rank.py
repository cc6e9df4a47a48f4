"""What a rank of `tune` does: it times messages over ringdist itself, again and again."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from torch_ringdist._options import Options
from torch_ringdist._tune_fit import SMALL, Kind, Sample

# Whose values are not for what is measured here; the file of RINGDIST_COSTS may not be there yet.
SET_ASIDE = ("COSTS", "ALGORITHM", "SEGMENT_BYTES", "TRANSPORT", "DETERMINISTIC", "CODEC")
# Of messages in streams, the least and the most that a segment may have among them.
_SIZES = (4 << 10, 16 << 10, 64 << 10, 252 << 10)
_CROWDS = (16 << 10, 252 << 10)
_STREAM_BYTES = 16 << 20  # at most, of one call
_CALLS = 4  # of a stream in a row; what lies between their ends is timed
_PART_NS = 30e6  # that a part may take in a round
_MOST_CALLS = 200
_RUN = 16  # calls in a row that are timed together
# Told after each part: what it was, and the share of the time that is over.
Tell = Callable[[str, float], None]


def set_aside() -> None:
    """Before the first group is made."""
    for name in SET_ASIDE:
        os.environ.pop(f"RINGDIST_{name}", None)
    os.environ["RINGDIST_WARN_AFTER"] = "0"  # hosts wait while others are measured


@dataclass(frozen=True)
class _Part:
    kind: Kind
    bytes: int
    pairs: int


class Prober:
    """One rank's side. The ranks, an even number, are paired: 0 with 1, 2 with 3, and so on; they
    are inside one host, or one on each of two.

    All ranks of the default group make one alike, and those in `ranks` then call measure() alike.
    """

    def __init__(self, ranks: Sequence[int], inside: bool, limit: timedelta) -> None:
        self._limit = limit
        transport = "shm" if inside else "ucx"
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

    def _group(self, ranks: Sequence[int], **options: str | int) -> dist.ProcessGroup:
        given = Options(**options)
        return dist.new_group(
            list(ranks), timeout=self._limit, backend="ringdist", pg_options=given
        )

    def measure(self, seconds: float, tell: Tell) -> tuple[list[Sample], int]:
        """The least times over as many rounds as fit, two at least; and how many those were."""
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
        """Messages of a stream, or calls, that take their share of a round. It warms up, too."""
        streams = part.kind in (Kind.STREAM, Kind.BOTH, Kind.CROWD)
        tried = 16
        taken = self._slowest(self._time(part, tried))
        fitting = int(_PART_NS / (_CALLS if streams else 1) / taken)
        most = _STREAM_BYTES // part.bytes if streams else _MOST_CALLS
        return max(8, min(most, fitting))

    def _time(self, part: _Part, count: int) -> float:
        """Nanoseconds of one message or call, on a rank that can tell; else 0."""
        dist.barrier(group=self._group_of_all)
        if self._place >= 2 * part.pairs:
            return 0.0
        if part.kind in (Kind.STREAM, Kind.BOTH, Kind.CROWD):
            return self._stream(part, count)
        return self._hops(self._one_hop if part.kind is Kind.ONE_HOP else self._two_hops, count)

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
                work.wait()
            ends.append(time.perf_counter_ns())
        if not receives:
            return 0.0
        return min(later - end for end, later in itertools.pairwise(ends)) / count

    @staticmethod
    def _hops(group: dist.ProcessGroup, count: int) -> float:
        tensor = torch.zeros(SMALL // 4, dtype=torch.float32, device="cpu")
        return _best_run(lambda: dist.all_reduce(tensor, group=group), count)

    def _slowest(self, ns: float) -> float:
        slowest = torch.tensor(ns, dtype=torch.float64, device="cpu")
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self._group_of_all)
        return float(slowest)

    def _agreed(self, mine: bool) -> bool:
        """What the first of the ranks says."""
        answer = torch.tensor(int(mine), dtype=torch.int64, device="cpu")
        dist.broadcast(answer, self._ranks[0], group=self._group_of_all)
        return bool(answer)


def _best_run(call: Callable[[], object], count: int) -> float:
    """Nanoseconds of a call, at best over runs of a few: a single one may find its message there
    already."""
    best = float("inf")
    for _ in range(max(1, count // _RUN)):
        begin = time.perf_counter_ns()
        for _ in range(_RUN):
            call()
        best = min(best, (time.perf_counter_ns() - begin) / _RUN)
    return best
