"""Statistics of operations and peers in a snapshot.

The keys are those of OpStatistics and PeerTrafficTable in csrc/engine/op/op_statistics.h. This
module imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from torch_ringdist._units import format_bytes, format_seconds, table

_MOST_ROWS = 20  # a table of text has no more
_LAST = 27  # the bucket of all durations that are too long for the others


@dataclass(frozen=True)
class Histogram:
    """Durations by powers of two.

    Attributes:
        sum: seconds, of all durations together.
        counts: bucket i has those up to 2**i * 1024 ns that no bucket before it has; bucket 27
            has all others.
    """

    sum: float = 0.0
    counts: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        return self.sum / max(1, sum(self.counts))

    def quantile(self, share: float) -> float:
        """Returns the upper limit, in seconds, of the bucket in which that share is reached."""
        left = share * sum(self.counts)
        for bucket, count in enumerate(self.counts[:_LAST]):
            left -= count
            if left <= 0:
                return 2**bucket * 1024 / 1e9
        return math.inf

    def __add__(self, other: Histogram) -> Histogram:
        pairs = zip_longest(self.counts, other.counts, fillvalue=0)
        return Histogram(self.sum + other.sum, tuple(a + b for a, b in pairs))


@dataclass(frozen=True)
class Operations:
    """Operations of one kind, codec and size that a rank has called in a group.

    Attributes:
        group, id: name and id of the group. Groups that have been destroyed, and those beyond the
            first ones, are together in the group "others" with the id "" and rank -1.
        codec: "" for none.
        size: least power of two that the bytes of the input and of the output do not exceed.
        count, failed: all operations, and those that ended with an error. One that failed before
            its group had formed is not counted.
        bytes, duration, wait: figures of those that succeeded. The wait of an operation is the
            longest time without progress, because its group was not formed yet, a rank had not
            called it yet, or the network was slow.
    """

    group: str
    id: str
    rank: int
    operation: str
    codec: str
    size: int
    count: int
    failed: int
    bytes: int
    duration: Histogram
    wait: Histogram


@dataclass(frozen=True)
class Peer:
    """Data exchanged with a process over a transport, without headers.

    Attributes:
        context: id of the process; "" for all together that have no row of their own.
        where: the process in words.
        sending: seconds in which sends were in flight.
    """

    context: str
    transport: str
    where: str
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    messages_received: int
    sending: float


@dataclass(frozen=True)
class Statistics:
    """Statistics of a process since its first group."""

    operations: tuple[Operations, ...] = ()
    peers: tuple[Peer, ...] = ()


def parse(told: dict[str, Any]) -> Statistics:
    """Returns what a process has answered. Raises ValueError, KeyError or TypeError if it is
    malformed."""

    def histogram(one: dict[str, Any]) -> Histogram:
        return Histogram(float(one["sum"]), tuple(map(int, one["counts"])))

    def row(group: dict[str, Any], op: dict[str, Any]) -> Operations:
        return Operations(
            group=str(group["name"]),
            id=str(group["id"]),
            rank=int(group["rank"]),
            operation=str(op["operation"]),
            codec=str(op["codec"]),
            **{key: int(op[key]) for key in ("size", "count", "failed", "bytes")},
            duration=histogram(op["duration"]),
            wait=histogram(op["wait"]),
        )

    operations = [row(group, op) for group in told["groups"] for op in group["ops"]]
    kinds = {"context": str, "transport": str, "where": str, "sending": float}
    peers = [
        Peer(**{name: kinds.get(name, int)(one[name]) for name in Peer.__dataclass_fields__})
        for one in told["peers"]
    ]
    return Statistics(tuple(operations), tuple(peers))


def as_text(ranks: Iterable[tuple[int | None, Statistics]]) -> str:
    """Returns two tables for the statistics of all ranks. The first has a row for each group,
    operation, codec and size, the one with the most time first. The second has a row for each peer
    of each rank, the one with the most bytes first."""
    rows: dict[tuple[str, ...], list[Operations]] = {}
    peers = []
    for rank, one in ranks:
        for op in one.operations:
            key = op.id or op.group, op.operation, op.codec, str(op.size)
            rows.setdefault(key, []).append(op)
        peers += [
            (rank, peer) for peer in one.peers if peer.messages_sent or peer.messages_received
        ]
    longest = sorted(rows.values(), key=lambda ops: -sum(op.duration.sum for op in ops))
    most = sorted(peers, key=lambda one: -one[1].bytes_sent)
    operations = _cut([_operations_row(ops) for ops in longest], _OPERATIONS)
    return "\n".join([*operations, "", *_cut([_peer_row(*one) for one in most], _PEERS)])


_OPERATIONS = (
    *("group", "operation", "codec", "size", "calls", "failed", "median", "99 %", "mean wait"),
    "least wait",
)
_PEERS = ("rank", "transport", "sent", "received", "sending for", "peer")


def _cut(rows: Sequence[tuple[str, ...]], head: tuple[str, ...]) -> list[str]:
    more = len(rows) - _MOST_ROWS
    lines = table([head, *rows[:_MOST_ROWS]])
    return [*lines, f"and {more} more rows, which --json has"] if more > 0 else lines


# Operations in which each rank waits for all others. There, a rank that waits much less than the
# others is the one that they wait for. The root of a broadcast, for one, never waits.
_SYMMETRIC = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}


def _operations_row(ops: Sequence[Operations]) -> tuple[str, ...]:
    first = ops[0]
    duration = sum((op.duration for op in ops), Histogram())
    wait = sum((op.wait for op in ops), Histogram())
    waits = [(op.wait.mean, op.rank) for op in ops if op.count > op.failed]
    compares = len(waits) > 1 and first.id and first.operation in _SYMMETRIC
    least, rank = min(waits, default=(0.0, 0))
    return (
        *(first.group, first.operation, first.codec or "-", format_bytes(first.size)),
        *(str(max(op.count for op in ops)), str(max(op.failed for op in ops))),
        *(_limit(duration.quantile(0.5)), _limit(duration.quantile(0.99))),
        format_seconds(wait.mean),
        f"{format_seconds(least)} (rank {rank})" if compares else "-",
    )


def _limit(seconds: float) -> str:
    return f"<= {format_seconds(seconds)}" if seconds < math.inf else "> 69 s"


# Inside a host a send ends when the data are in shared memory, so its time is about 0.
def _peer_row(rank: int | None, peer: Peer) -> tuple[str, ...]:
    return (
        *("-" if rank is None else str(rank), peer.transport or "-"),
        *(format_bytes(peer.bytes_sent), format_bytes(peer.bytes_received)),
        *(format_seconds(peer.sending), peer.where),
    )
