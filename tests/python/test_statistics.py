"""ringdist status --statistics: figures of real ranks, and their tables."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group, oracle

import torch_ringdist
from torch_ringdist import _dump, _snapshot, _statistics
from torch_ringdist._statistics import Histogram, Operations, Peer, Statistics

TIMES = Histogram(0.5, (1, 0, 3))
OPERATIONS = Operations(
    *("0", "a" * 16, 0, "all_reduce", "int4"), 1 << 20, 4, 1, 3 << 20, TIMES, Histogram(0.004, (4,))
)
PEER = Peer("b" * 16, "ucx", "pid 7 on host h", 3 << 20, 1024, 3, 4, 0.024)


def _use_and_take() -> tuple[str, Statistics, dict[str, int]]:
    rank, group = dist.get_rank(), new_group()
    for _ in range(5):
        if rank == 1:
            time.sleep(0.1)
        dist.all_reduce(torch.ones(1 << 18), group=group)
    if rank == 0:
        dist.send(torch.ones(2), 1, group=group)
    elif rank == 1:
        dist.recv(torch.ones(2), 0, group=group)
    other = new_group()
    dist.broadcast(torch.ones(3), 0, group=other)
    dist.destroy_process_group(other)
    dist.barrier(group=oracle())
    [snapshot], problems = _snapshot.take(os.getpid(), details=_dump.WITH_STATISTICS)
    stats = torch_ringdist.stats()
    dist.barrier(group=oracle())  # nothing is sent before all have their snapshots
    assert not problems
    [own] = [one for one in snapshot.processes if one.pid == os.getpid()]
    assert own.statistics is not None
    name = group.group_name
    dist.destroy_process_group(group)
    return name, own.statistics, stats


def test_figures_of_real_ranks(pools):
    ranks = pools(3).run(_use_and_take)
    waits = []
    for rank, (name, found, stats) in enumerate(ranks):
        rows = {op.operation: op for op in found.operations if op.group == name}
        message = ({"send"}, {"recv"}, set())[rank]
        assert set(rows) == {"all_reduce"} | message
        reduce = rows["all_reduce"]
        assert (reduce.rank, reduce.count, reduce.failed) == (rank, 5, 0)
        assert (reduce.size, reduce.bytes) == (1 << 20, 5 << 20)
        assert sum(reduce.duration.counts) == sum(reduce.wait.counts) == 5
        waits.append(reduce.wait.mean)
        others = [op for op in found.operations if op.group == "others"]
        assert any(op.operation == "broadcast" and op.size == 16 for op in others)
        for figure in ("bytes_sent", "bytes_received", "messages_sent", "messages_received"):
            assert sum(getattr(one, figure) for one in found.peers) == stats[figure], figure
    assert min(waits[0], waits[2]) > 2 * waits[1], "they wait for rank 1"


def test_a_quantile_is_the_end_of_a_bucket():
    assert TIMES.quantile(0.25) == 1.024e-6
    assert TIMES.quantile(0.5) == TIMES.quantile(1) == 4.096e-6
    assert TIMES.mean == 0.125
    assert Histogram(1.0, (0,) * 27 + (1,)).quantile(0.5) == math.inf
    assert TIMES + Histogram(0.5, (1,)) == Histogram(1.0, (2, 0, 3))


def test_tables_of_all_ranks():
    late = replace(OPERATIONS, rank=1, wait=Histogram(0.0004, (4,)))
    others = replace(OPERATIONS, group="others", id="", rank=-1, duration=Histogram())
    failed = replace(OPERATIONS, rank=2, count=1, failed=1, duration=Histogram(), wait=Histogram())
    rooted = [
        replace(one, operation="broadcast", duration=Histogram()) for one in (OPERATIONS, late)
    ]
    text = _statistics.as_text(
        [
            (0, Statistics((OPERATIONS, others, rooted[0]), (PEER,))),
            (1, Statistics((late, rooted[1]))),
            (2, Statistics((failed,))),
        ]
    )
    first, second, third, _, head, peer = text.splitlines()[1:]
    columns = "0 all_reduce int4 1 MiB 4 1 <= 4.10 us <= 4.10 us 550 us 100 us (rank 1)"
    assert " ".join(first.split()) == columns
    assert second.startswith("others") and second.endswith("-")
    assert "broadcast" in third and third.endswith("-"), "its root never waits"
    assert head.split()[0] == "rank"
    assert " ".join(peer.split()) == "0 ucx 3 MiB 1 KiB 24 ms pid 7 on host h"
    many = [replace(PEER, bytes_sent=size, transport="shm") for size in range(30)]
    rows = _statistics.as_text([(None, Statistics((), tuple(many)))]).splitlines()
    assert rows[-1] == "and 10 more rows, which --json has" and rows[0].startswith("group")
    assert rows[3].split()[:5] == ["-", "shm", "29", "B", "1"]


def test_malformed_statistics_are_refused():
    row: dict[str, Any] = {**json.loads(json.dumps(vars(PEER)))}
    assert _statistics.parse({"groups": [], "peers": [row]}).peers == (PEER,)
    for bad in (
        {},
        {"groups": [], "peers": [{**row, "sending": "x"}]},
        {"groups": [1], "peers": []},
    ):
        with pytest.raises((ValueError, KeyError, TypeError)):
            _statistics.parse(bad)
