"""Figures of all ranks for TensorBoard."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torch_ringdist import _snapshot
from torch_ringdist._dump import WITH_STATISTICS, DumpError
from torch_ringdist._snapshot import Snapshot
from torch_ringdist._statistics import Statistics


class Writer(Protocol):
    """The method that both functions log_to() need of a torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None) -> Any: ...


@dataclass(frozen=True)
class _Figures:
    """Sums of a rank since its first group, and when they were taken, in seconds."""

    at: float
    operations: int
    seconds: float
    waited: float
    sent: int

    @classmethod
    def of(cls, at: float, one: Statistics) -> _Figures:
        return cls(
            at,
            sum(op.count for op in one.operations),
            sum(op.duration.sum for op in one.operations),
            sum(op.wait.sum for op in one.operations),
            sum(peer.bytes_sent for peer in one.peers),
        )


_last: WeakKeyDictionary[Writer, dict[str, _Figures]] = WeakKeyDictionary()


def log_to(writer: Writer, step: int | None = None) -> None:
    """Writes figures of all ranks to TensorBoard, from one rank and without a collective.

        if dist.get_rank() == 0 and step % 100 == 0:
            torch_ringdist.log_to(writer, step)

    The ranks answer from a thread of their own, as they do to ``ringdist status``. That takes about
    0.1 s, and 0.6 s if one does not answer, which is then left out. The figures are those since the
    last call with this writer. So the first call writes nothing about operations. One thread at a
    time for each writer.

    Tags, of which the first four end with ``/rank_N``, the rank in the largest group:

        ringdist/operations_per_second, ringdist/sent_bytes_per_second
        ringdist/operation_time_share: time of operations, per time. It may exceed 1, as several can
            be in flight.
        ringdist/wait_share: part of the operations' time without progress. The others wait for the
            rank that has the least.
        ringdist/stragglers, ringdist/slow_links: how many there are, if this is the rank that looks
            for them, rank 0 of the largest group.
        ringdist/ranks_without_answer

    Args:
        writer: a SummaryWriter, or an object with the same add_scalar that is hashable and can be
            weakly referenced.
        step: the global step.

    Raises:
        RuntimeError: this process has no group, or does not answer, for one because its key comes
            from Options and not from RINGDIST_KEY_FILE.
        TypeError: the writer cannot be weakly referenced.
    """
    last = _last.setdefault(writer, {})
    try:
        [snapshot], _ = _snapshot.take(os.getpid(), details=WITH_STATISTICS)
    except DumpError as error:
        raise RuntimeError(f"ringdist: log_to: {error}") from None
    values = _values(last, snapshot, time.monotonic())
    for tag, value in values.items():
        writer.add_scalar(f"ringdist/{tag}", value, step)


# Returns the value of each tag, and replaces the figures of the last call.
def _values(last: dict[str, _Figures], snapshot: Snapshot, now: float) -> dict[str, float]:
    out: dict[str, float] = {}
    for context in last.keys() - {one.context for one in snapshot.processes}:
        del last[context]
    for process in snapshot.processes:
        if process.statistics is None:
            continue
        before, new = last.get(process.context), _Figures.of(now, process.statistics)
        last[process.context] = new
        rank = snapshot.ranks.get(process.context)  # None outside the largest group
        if before is None or new.at <= before.at or rank is None:
            continue
        elapsed, seconds = new.at - before.at, new.seconds - before.seconds
        figures = {
            "operations_per_second": (new.operations - before.operations) / elapsed,
            "sent_bytes_per_second": (new.sent - before.sent) / elapsed,
            "operation_time_share": seconds / elapsed,
            "wait_share": (new.waited - before.waited) / seconds if seconds > 0 else 0.0,
        }
        out.update({f"{name}/rank_{rank}": value for name, value in figures.items()})
    out["stragglers"] = len(snapshot.stragglers)
    out["slow_links"] = len(snapshot.slow_links)
    out["ranks_without_answer"] = sum(one.statistics is None for one in snapshot.processes)
    return out
