"""Async ops: in flight, without a wait, in any order, from callbacks and from threads."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import Ranks, caught, in_threads, new_group, new_store, poll, same_bits
from support.store import wait_for

MIB = 1 << 20


def _many_while_one_sleeps(count: int, seconds: float) -> float:
    """Returns when rank 1 issued its first op, and when another rank's last op had completed."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = new_store()
    if rank == 1:
        wait_for(store, *(f"issued by {other}" for other in range(size) if other != rank))
        time.sleep(seconds)
    tensors = [torch.full((5000 + i,), float(rank + i)) for i in range(count)]
    at = time.monotonic()
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    if rank != 1:
        assert not works[-1].is_completed(), "done without rank 1"
        store.set(f"issued by {rank}", "")
        works[-1].wait()
        at = time.monotonic()
    for work in works:
        work.wait()
    for i, tensor in enumerate(tensors):
        expected = size * i + size * (size - 1) / 2
        same_bits(tensor, torch.full((5000 + i,), expected), f"op {i}")
    return at


@pytest.mark.check
def test_200_ops_in_flight_while_a_rank_sleeps(pools):
    done, issued, also_done = pools(3).run(_many_while_one_sleeps, 200, 1.0)
    assert min(done, also_done) >= issued, "done without rank 1"


def _two_groups_in_opposite_order() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [new_group(), new_group()]
    tensors = [torch.full((16 * MIB,), float(rank + g)) for g in range(2)]
    order = [0, 1] if rank % 2 == 0 else [1, 0]
    works = [dist.all_reduce(tensors[g], group=groups[g], async_op=True) for g in order]
    for work in works:
        work.wait()
    for g, tensor in enumerate(tensors):
        expected = size * (size - 1) / 2 + g * size
        assert tensor.min() == tensor.max() == expected, (g, tensor.min(), tensor.max(), expected)
    for group in groups:
        dist.destroy_process_group(group)


def test_two_groups_of_64_mib_in_opposite_order(pools):
    pools(2).run(_two_groups_in_opposite_order)


def _callbacks_that_issue_ops() -> None:
    size = dist.get_world_size()
    # Each callback has its own group, because the order of two callbacks is not guaranteed.
    groups = [new_group(), new_group()]

    def step(group):
        def callback(future):
            [tensor] = future.value()
            again = dist.all_reduce(tensor, group=group, async_op=True).get_future()
            return again.wait()[0] + 1

        return callback

    works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in groups]
    chained = [w.get_future().then(step(group)) for w, group in zip(works, groups, strict=True)]
    for future in chained:
        same_bits(future.wait(), torch.full((100_000,), size * size + 1.0), "chained")
    for group in groups:
        dist.destroy_process_group(group)


def test_callbacks_of_two_ops_each_wait_for_an_op_of_theirs(pools):
    pools(3).run(_callbacks_that_issue_ops)


def _nobody_waits() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size - 1) / 2
    plain = torch.full((300_000,), float(rank))
    columns = torch.full((300, 200), float(rank)).t()
    wide = torch.zeros(size * 7, 2)[:, 0]
    works = [
        dist.all_reduce(plain, async_op=True),
        dist.all_reduce(columns, async_op=True),
        dist.all_gather_into_tensor(wide, torch.full((7,), float(rank)), async_op=True),
        dist.barrier(async_op=True),
    ]
    assert poll(lambda: all(w.is_completed() for w in works)), "an op did not finish by itself"
    assert all(w.is_success() for w in works)
    # Completion means that the results are there, including those that had to be copied back.
    same_bits(plain, torch.full_like(plain, total), "contiguous")
    same_bits(columns, torch.full((200, 300), total), "transposed")
    same_bits(wide, torch.arange(size, dtype=torch.float32).repeat_interleave(7), "strided")


def test_ops_that_nobody_waits_for_finish(pools):
    pools(3).run(_nobody_waits)


def _future_holds_tensors() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((9,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    value = work.get_future().value()
    assert isinstance(value, list) and len(value) == 1, value
    assert value[0].data_ptr() == tensor.data_ptr()
    parts = [torch.empty(4) for _ in range(size)]
    gathered = dist.all_gather(parts, torch.full((4,), float(rank)), async_op=True).get_future()
    value = gathered.wait()
    assert [v.data_ptr() for v in value] == [p.data_ptr() for p in parts]
    barrier = dist.barrier(async_op=True).get_future().wait()
    assert barrier == [], barrier


def test_future_resolves_to_the_tensors(pools):
    pools(2).run(_future_holds_tensors)


def _short_wait(sparse: bool) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(1000).to_sparse() if sparse else torch.ones(1000)
    store = new_store()
    if rank == 0:
        wait_for(store, "expired")
        dist.all_reduce(tensor)
    else:
        work = dist.all_reduce(tensor, async_op=True)
        error = caught(work.wait, timedelta(milliseconds=200))
        assert error and "DistBackendError" in error.kinds, error
        assert "200 ms" in error.text and "all_reduce" in error.text, error
        assert error.after >= 0.2, error
        assert not work.is_completed()
        store.set("expired", "")
        work.wait()
    same_bits(tensor.to_dense(), torch.full((1000,), float(size)), "after the wait that expired")
    dist.all_reduce(tensor)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_wait_that_expires_ends_only_itself(pools, sparse: bool):
    pools(2).run(_short_wait, sparse)


def _sequence_numbers() -> list[int]:
    group = new_group()
    backend = group._get_backend(torch.device("cpu"))
    numbers = [backend._get_sequence_number_for_group()]
    for i in range(3):
        if i == 1:
            dist.barrier(group=group)
        else:
            dist.all_reduce(torch.ones(1), group=group)
        numbers.append(backend._get_sequence_number_for_group())
    dist.destroy_process_group(group)
    return numbers


def test_sequence_numbers_count_ops(pools):
    first, *rest = pools(2).run(_sequence_numbers)
    assert [n - first[0] for n in first] == [0, 1, 2, 3]
    assert all(other == first for other in rest)


def _threads_and_groups() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [new_group() for _ in range(4)]

    def work(g: int):
        def run() -> None:
            for i in range(50):
                tensor = torch.full((1 + 997 * i,), float(rank * (g + 1)))
                dist.all_reduce(tensor, group=groups[g])
                expected = (g + 1) * size * (size - 1) / 2
                same_bits(tensor, torch.full_like(tensor, expected), f"group {g}, op {i}")

        return run

    in_threads([work(g) for g in range(4)])
    for group in groups:
        dist.destroy_process_group(group)


def test_threads_with_a_group_each(pools):
    pools(3).run(_threads_and_groups)


def _idle_cost() -> float:
    """Returns the median of three measurements, because a barrier's work may end late."""
    dist.barrier()
    shares = []
    for _ in range(3):
        begin, cpu = time.monotonic(), time.process_time()
        time.sleep(1)
        shares.append((time.process_time() - cpu) / (time.monotonic() - begin))
    return sorted(shares)[1]


def test_quiet_when_idle(pools):
    shares = pools(2).run(_idle_cost)
    assert max(shares) < 0.01, shares


def _waits_until_a_rank_comes() -> float:
    cpu = time.process_time()
    if Ranks.rank == 0:
        time.sleep(3)
    dist.all_reduce(torch.ones(10))
    return time.process_time() - cpu


def test_waiting_for_a_late_rank_does_not_burn_a_core(pools):
    assert max(pools(2).run(_waits_until_a_rank_comes)) < 1.0
