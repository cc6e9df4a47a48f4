"""torch_ringdist.log_to(): figures of all ranks, from one of them."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group, oracle

import torch_ringdist
from torch_ringdist import _dump


class Writer:
    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None) -> None:
        assert global_step == 7
        self.values[tag] = scalar_value


def _train_and_log() -> tuple[dict[str, float], dict[str, float], float]:
    rank, group, writer = dist.get_rank(), new_group(), Writer()
    dist.all_reduce(torch.ones(2), group=group)
    dist.barrier(group=oracle())
    began = time.monotonic()
    if rank == 0:
        torch_ringdist.log_to(writer, 7)
    first, writer.values = writer.values, {}
    dist.barrier(group=oracle())
    for _ in range(10):
        if rank == 1:
            time.sleep(0.05)
        dist.all_reduce(torch.ones(1 << 18), group=group)
    dist.barrier(group=oracle())
    if rank == 0:
        torch_ringdist.log_to(writer, 7)
    elapsed = time.monotonic() - began
    dist.barrier(group=oracle())
    dist.destroy_process_group(group)
    return first, writer.values, elapsed


def test_figures_of_all_ranks_come_from_one(pools):
    first, values, elapsed = pools(3).run(_train_and_log)[0]
    whole_job = {"ringdist/stragglers", "ringdist/slow_links", "ringdist/ranks_without_answer"}
    assert set(first) == whole_job
    names = ("operations_per_second", "sent_bytes_per_second", "operation_time_share", "wait_share")
    tags = {f"ringdist/{name}/rank_{rank}" for name in names for rank in range(3)}
    assert set(values) == tags | whole_job
    assert values["ringdist/ranks_without_answer"] == 0
    for rank in range(3):
        # The time between the two answers is at most `elapsed`.
        assert values[f"ringdist/operations_per_second/rank_{rank}"] >= 10 / elapsed
        sent = values[f"ringdist/sent_bytes_per_second/rank_{rank}"] * elapsed
        assert sent >= 10 * (1 << 20)
    waits = [values[f"ringdist/wait_share/rank_{rank}"] for rank in range(3)]
    assert min(waits[0], waits[2]) > waits[1], "they wait for rank 1"


def test_a_writer_that_cannot_be_remembered():
    class Slots:
        __slots__ = ()

    with pytest.raises(TypeError, match="weak reference"):
        torch_ringdist.log_to(Slots(), 7)


def test_without_a_group_it_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_dump, "find_all", list)
    with pytest.raises(RuntimeError, match=r"ringdist: log_to: process \d+ has no ringdist group"):
        torch_ringdist.log_to(Writer(), 7)
