"""Lists of tensors as one operation, and regions with operations that start together."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import caught, new_group, oracle, same_bits
from support.reference import exact_inputs, reduced
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    ReduceScatterOptions,
    _coalescing_manager,
)

import torch_ringdist

SIZES = [1, 2, 3]
CPU = torch.device("cpu")
# Tensors of a list: their dtypes and sizes.
LISTS = {
    "one": [("float32", 7)],
    "of one dtype": [("float32", 5), ("float32", 0), ("float32", 1009), ("float32", 70_001)],
    "empty": [("float32", 0), ("int64", 0)],
    "mixed": [("float32", 5), ("int64", 3), ("float32", 1000), ("bfloat16", 9), ("int64", 20_000)],
}


def backend():
    return dist.group.WORLD._get_backend(CPU)


def inputs(which: str, scale: int, seed: int) -> list[torch.Tensor]:
    """Returns the inputs of all ranks, in rows, for each tensor of the list."""
    size = dist.get_world_size()
    return [
        exact_inputs(name, "SUM", size, count * scale, seed + i)
        for i, (name, count) in enumerate(LISTS[which])
    ]


def _all_reduces(which: str, seed: int) -> None:
    rank = dist.get_rank()
    before = backend()._get_sequence_number_for_group()
    given = inputs(which, 1, seed)
    tensors = [rows[rank].clone() for rows in given]
    options = dist.AllreduceCoalescedOptions()
    work = backend().allreduce_coalesced(tensors, options)
    future = work.get_future().wait()
    work.wait(timedelta(seconds=30))
    assert work.is_completed() and work.is_success() and work.exception() is None
    for tensor, rows in zip(tensors, given, strict=True):
        same_bits(tensor, reduced(rows, "SUM"), f"all_reduce of {which}")
    pointers = sorted(t.data_ptr() for t in tensors)
    assert sorted(t.data_ptr() for t in future) == pointers, "the Future holds other tensors"
    assert sorted(t.data_ptr() for t in work.result()) == pointers, "the result is another"
    count = backend()._get_sequence_number_for_group() - before
    assert count == 1, "not one op"


@pytest.mark.parametrize("which", ["one", "of one dtype"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.check
def test_all_reduce_coalesced(pools, size: int, which: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_all_reduces, which, seed)


REFUSED = {
    "no tensors": ([], "requires non-empty tensor list"),
    "of two dtypes": ([torch.ones(2), torch.ones(3).int()], "tensors must all have the same type"),
    "one is sparse": ([torch.ones(2), torch.eye(2).to_sparse()], "tensors[1] has an unsupported"),
    "none is dense": ([torch.eye(2).to_sparse()], "tensors[0] has an unsupported layout"),
    "one overlaps itself": ([torch.ones(2), torch.ones(2).expand(4, 2)], "tensors[1] overlaps"),
}


def _refused() -> None:
    for what, (tensors, expected) in REFUSED.items():
        options = dist.AllreduceCoalescedOptions()
        error = caught(backend().allreduce_coalesced, tensors, options)
        assert error is not None and expected in error.text, (what, error)
        assert {"RuntimeError", "ValueError"} <= set(error.kinds), (what, error)
    dist.all_reduce(torch.ones(3))


def test_lists_that_all_reduce_refuses(pools):
    pools(2).run(_refused)


def _gathers_and_scatters(which: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    given = inputs(which, 1, seed)
    mine = [rows[rank].clone() for rows in given]
    outputs = [torch.empty(rows.numel(), dtype=rows.dtype) for rows in given]
    dist.group.WORLD.allgather_into_tensor_coalesced(outputs, mine, AllgatherOptions()).wait()
    for output, rows in zip(outputs, given, strict=True):
        same_bits(output, rows.reshape(-1), f"all_gather of {which}")
    in_place = [torch.empty_like(output) for output in outputs]
    views = [t.view(size, -1)[rank] for t in in_place]
    for view, tensor in zip(views, mine, strict=True):
        view.copy_(tensor)
    dist.group.WORLD.allgather_into_tensor_coalesced(in_place, views, AllgatherOptions()).wait()
    for tensor, output in zip(in_place, outputs, strict=True):
        same_bits(tensor, output, f"all_gather of {which}, in place")
    lists = [[torch.empty_like(tensor) for tensor in mine] for _ in range(size)]
    backend().allgather_coalesced(lists, mine, AllgatherOptions()).wait()
    for r in range(size):
        for tensor, rows in zip(lists[r], given, strict=True):
            same_bits(tensor, rows[r], f"lists of {which}, of rank {r}")
    given = inputs(which, size, seed)
    outputs = [torch.empty(rows.shape[1] // size, dtype=rows.dtype) for rows in given]
    mine = [rows[rank].clone() for rows in given]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(outputs, mine, ReduceScatterOptions()).wait()
    for output, rows in zip(outputs, given, strict=True):
        expected = reduced(rows, "SUM").reshape(size, -1)[rank]
        same_bits(output, expected, f"reduce_scatter of {which}")


@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("size", SIZES)
def test_gathers_and_scatters_of_lists(pools, size: int, which: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_gathers_and_scatters, which, seed)


def _aliases() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((50,), rank + 1.0)
    strided = torch.full((20, 2), rank + 1.0)[:, 1]
    dist.all_reduce_coalesced([tensor, strided, tensor])
    total = size * (size + 1) / 2
    same_bits(tensor, torch.full((50,), total), "given twice")
    same_bits(strided, torch.full((20,), total), "strided")


@pytest.mark.parametrize("size", SIZES)
def test_aliases_in_a_list(pools, size: int):
    pools(size).run(_aliases)


def _manager() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((i + 1,), float(rank)) for i in range(5)]
    outputs = [torch.empty(size * len(t)) for t in tensors]
    with _coalescing_manager():
        for output, tensor in zip(outputs, tensors, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    for output, tensor in zip(outputs, tensors, strict=True):
        expected = torch.arange(float(size)).repeat_interleave(len(tensor))
        same_bits(output, expected, "coalesced all_gather")
    with _coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        same_bits(tensor, torch.full((i + 1,), size * (size - 1) / 2), "coalesced all_reduce")


@pytest.mark.parametrize("size", SIZES)
def test_the_coalescing_manager(pools, size: int):
    pools(size).run(_manager)


def _region() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    number = backend()._get_sequence_number_for_group()
    tensors = [torch.full((1000 + i,), float(rank)) for i in range(4)]
    got, whole = torch.empty(70_000), torch.empty(3 * size)
    works = []
    dist.group.WORLD._start_coalescing(CPU)
    works += [dist.all_reduce(t, async_op=True) for t in tensors[:3]]
    works.append(dist.irecv(got, before))
    works.append(dist.all_reduce(tensors[3], dist.ReduceOp.MAX, async_op=True))
    works.append(dist.isend(torch.full((70_000,), float(rank)), after))
    works.append(dist.all_gather_into_tensor(whole, torch.full((3,), float(rank)), async_op=True))
    assert backend()._get_sequence_number_for_group() == number, "something started too early"
    work = dist.group.WORLD._end_coalescing(CPU)
    # Three sums are one op; sends and receives have no number.
    assert backend()._get_sequence_number_for_group() - number == 3
    work.wait()
    for i in range(3):
        same_bits(tensors[i], torch.full((1000 + i,), size * (size - 1) / 2), f"sum {i}")
    same_bits(tensors[3], torch.full((1003,), size - 1.0), "maximum")
    same_bits(got, torch.full((70_000,), float(before)), "received")
    same_bits(whole, torch.arange(float(size)).repeat_interleave(3), "gathered")
    assert all(w.is_completed() for w in works), "a call of the region is not complete"


@pytest.mark.parametrize("size", [2, 3])
def test_a_region_of_mixed_operations(pools, size: int):
    pools(size).run(_region)


def _odd_regions() -> None:
    world, size = dist.group.WORLD, dist.get_world_size()
    # An empty region, and the end of none.
    world._start_coalescing(CPU)
    world._end_coalescing(CPU).wait()
    world._end_coalescing(CPU).wait()
    # A wait inside a region ends it. Later calls belong to the same Work.
    world._start_coalescing(CPU)
    dist.all_reduce(first := torch.ones(5))
    same_bits(first, torch.full((5,), float(size)), "waited for inside a region")
    dist.all_reduce(second := torch.ones(5), async_op=True)
    world._end_coalescing(CPU).wait()
    same_bits(second, torch.full((5,), float(size)), "called after the wait")
    # A rejected call ends the region, and nothing of it is sent.
    world._start_coalescing(CPU)
    dropped = dist.all_reduce(tensor := torch.ones(5), async_op=True)
    error = caught(dist.all_reduce, torch.ones(1).expand(4))
    assert error and "overlaps itself" in error.text, error
    error = caught(dropped.wait)
    assert error and "region" in error.text, error
    same_bits(tensor, torch.ones(5), "a tensor of the dropped region")
    dist.all_reduce(tensor)
    same_bits(tensor, torch.full((5,), float(size)), "the group after it")
    # A region that an unrelated exception left.
    world._start_coalescing(CPU)
    dist.all_reduce(torch.ones(5), async_op=True)
    world._start_coalescing(CPU)
    dist.all_reduce(tensor := torch.ones(5), async_op=True)
    world._end_coalescing(CPU).wait()
    same_bits(tensor, torch.full((5,), float(size)), "the region after one that was not ended")


@pytest.mark.parametrize("size", [1, 2])
def test_regions_that_end_otherwise(pools, size: int):
    pools(size).run(_odd_regions)


class _Stop(BaseException):
    """Stands for KeyboardInterrupt."""


def _left_by_an_exception() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in (KeyError, _Stop):
        # Sends are collected by the backend, all-reduces by torch.distributed.
        if rank == 0:
            with pytest.raises(kind), _coalescing_manager(None, CPU, async_ops=True):
                dist.isend(torch.full((5,), 7.0), 1)
                raise kind
            dist.send(torch.full((5,), 9.0), 1)
        if rank == 1:
            dist.recv(got := torch.zeros(5), 0)
            same_bits(got, torch.full((5,), 9.0), "sent after the region")
        with pytest.raises(kind), _coalescing_manager(async_ops=True):
            dist.all_reduce(dropped := torch.ones(5))
            raise kind
        dist.all_reduce(tensor := torch.ones(5))
        same_bits(tensor, torch.full((5,), float(size)), "called after the region")
        with _coalescing_manager():
            dist.all_reduce(tensor)
        same_bits(tensor, torch.full((5,), float(size * size)), "in a region after it")
        same_bits(dropped, torch.ones(5), "of the region")


def test_a_region_that_an_exception_leaves(pools):
    pools(2).run(_left_by_an_exception)


def _mixed_and_nested() -> None:
    size = dist.get_world_size()
    # The region is rejected at its end, when torch.distributed has already reset its state.
    with pytest.raises(RuntimeError, match="same type"), _coalescing_manager(None, CPU):
        dist.isend(torch.ones(5), (dist.get_rank() + 1) % size)
        dist.all_reduce(torch.ones(5))
        dist.all_gather_into_tensor(torch.empty(5 * size), torch.ones(5))
    error = caught(dist.isend(torch.ones(3), (dist.get_rank() + 1) % size).is_completed)
    assert error is None, error
    dist.recv(got := torch.zeros(3), (dist.get_rank() - 1) % size)
    same_bits(got, torch.ones(3), "sent after the region")
    # A region inside another is rejected, and the outer one continues.
    with _coalescing_manager():
        dist.all_reduce(first := torch.ones(5))
        with pytest.raises(ValueError, match="non-empty op list"), _coalescing_manager():
            pass
        dist.all_reduce(second := torch.ones(5))
    same_bits(first, torch.full((5,), float(size)), "before the one inside")
    same_bits(second, torch.full((5,), float(size)), "after the one inside")


def test_regions_that_are_refused(pools):
    pools(2).run(_mixed_and_nested)


def _of_another_backend() -> None:
    state = dist.distributed_c10d._world.pg_coalesce_state
    with pytest.raises(KeyError), _coalescing_manager(oracle()):
        dist.all_reduce(torch.ones(5), group=oracle())
        raise KeyError
    assert len(state.pop(oracle())) == 1, "as PyTorch leaves it"


def test_regions_of_other_backends_are_left_alone(pools):
    pools(2).run(_of_another_backend)


def _compressed_list(seed: int) -> None:
    group = new_group(pg_options=torch_ringdist.Options(codec="int8"))
    noise = torch.Generator().manual_seed(seed + dist.get_rank())
    given = [torch.randn(count, generator=noise) for count in (3000, 0, 5, 1500)]
    ours = [t.clone() for t in given]
    dist.all_reduce_coalesced(ours, group=group)
    for tensor, row in zip(given, ours, strict=True):
        dist.all_reduce(tensor, group=oracle())
        assert torch.allclose(row, tensor, atol=0.1), (row - tensor).abs().max()
    assert not torch.equal(ours[0], given[0]), "it was not compressed"
    dist.destroy_process_group(group)


def test_a_list_in_a_compressed_group(pools):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(2).run(_compressed_list, seed)
