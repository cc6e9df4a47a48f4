"""Tensors in shared memory: all operations give the results of ordinary tensors, peers read them
in place, and no memory is left behind."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import time

import pytest
import torch
import torch.distributed as dist
from support.rank import caught, oracle, poll, same_bits
from support.shared import (
    READS_IN_PLACE,
    mappings,
    read_in_place,
    reads_in_place,
    settle,
    shares_alone,
)
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

DTYPES = [torch.float32, torch.bfloat16, torch.int64]
COUNT = 240_240  # a multiple of 2, 3 and 4, and more than one segment of any of them


def sharing(shares: bool):
    return torch_ringdist.shared_memory() if shares else contextlib.nullcontext()


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns small integers, so that sums are exact."""
    return (torch.arange(count) % 13 + rank).to(dtype)


def _operations(who: str, dtype: torch.dtype) -> int:
    """Runs all operations with tensors that are shared on some ranks, or on all. Returns the
    bytes that others have read in place."""
    rank, size = dist.get_rank(), dist.get_world_size()
    shares = who == "all" or (who == "one" and rank == 0) or (who == "others" and rank != 0)
    before = read_in_place()

    def tensor(count: int, of: int = rank) -> torch.Tensor:
        with sharing(shares):
            return values(of, count, dtype).clone()

    def parts(of: int = rank) -> list[torch.Tensor]:
        return [tensor(COUNT, of) for _ in range(size)]

    rows = [values(each, COUNT, dtype) for each in range(size)]
    total = torch.stack(rows).sum(0, dtype=torch.int64).to(dtype)
    small, whole = tensor(COUNT), tensor(COUNT * size)
    lists, blank = parts(), parts()
    for _ in range(4):  # the first one exports the memory and sends copies
        small.copy_(rows[rank])
        dist.all_reduce(small)
        same_bits(small, total, "all_reduce")
        small.copy_(rows[rank])
        dist.reduce(small, 1)
        if rank == 1:
            same_bits(small, total, "reduce")
        small.copy_(rows[rank])
        dist.broadcast(small, 1)
        same_bits(small, rows[1], "broadcast")
        small.copy_(rows[rank])
        dist.all_gather_into_tensor(whole, small)
        same_bits(whole, torch.cat(rows), "all_gather_into_tensor")
        dist.all_gather(blank, small)
        same_bits(torch.cat(blank), torch.cat(rows), "all_gather")
        dist.gather(small, blank if rank == 0 else None, 0)
        if rank == 0:
            same_bits(torch.cat(blank), torch.cat(rows), "gather")
        whole.copy_(torch.cat([rows[rank]] * size))
        dist.reduce_scatter_tensor(small, whole)
        same_bits(small, total, "reduce_scatter_tensor")
        dist.scatter(small, lists if rank == 0 else None, 0)
        same_bits(small, rows[0], "scatter")
        dist.all_to_all(blank, lists)
        same_bits(torch.cat(blank), torch.cat(rows), "all_to_all")
        with sharing(shares):
            out = torch.empty_like(whole)
        dist.all_to_all_single(out, whole)
        same_bits(out, torch.cat(rows), "all_to_all_single")
        ends = [
            dist.isend(whole, (rank + 1) % size),
            dist.irecv(out, (rank - 1) % size),
        ]
        for end in ends:
            end.wait()
        same_bits(out, torch.cat([rows[(rank - 1) % size]] * size), "recv")
        views = [whole[i::size] for i in range(size)]  # not contiguous
        views[rank].copy_(rows[rank])
        dist.all_reduce(views[rank])
        same_bits(views[rank].contiguous(), total, "all_reduce of a view")
        odd = small[1:-1]
        odd.copy_(rows[rank][1:-1])
        dist.all_reduce(odd)
        same_bits(odd, total[1:-1], "all_reduce of a part")
    return read_in_place() - before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "who", ["all", *(pytest.param(some, marks=shares_alone) for some in ("one", "others"))]
)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_operations(pools, size: int, who: str, dtype: torch.dtype):
    read = pools(size).run(_operations, who, dtype)
    shares = {"all": range(size), "one": [0], "others": range(1, size)}[who]
    for rank in range(size):
        assert (read[rank] > 0) == (READS_IN_PLACE and rank in shares), f"rank {rank}: {read}"


def _in_place() -> None:
    with torch_ringdist.shared_memory():
        tensor = torch.ones(1 << 20)
    small = torch.ones(1 << 20)
    assert mappings() > 0
    for given in (tensor, small):
        dist.all_reduce(given)
    assert poll(lambda: _reads(tensor, given_bytes=2 << 20)), "nothing was read in place"
    before = read_in_place()
    dist.all_reduce(small)
    assert read_in_place() == before, "a usual tensor was read in place"


def _reads(tensor: torch.Tensor, given_bytes: int) -> bool:
    """Returns True if an allreduce reads that much in place. All ranks continue or end together."""
    before = read_in_place()
    dist.all_reduce(tensor)
    enough = torch.tensor([read_in_place() - before >= given_bytes]).int()
    dist.all_reduce(enough, dist.ReduceOp.MIN)
    return bool(enough)


@reads_in_place
@shares_alone
@pytest.mark.check
def test_nothing_is_staged(pools):
    pools(2).run(_in_place)


def _gone(how: str) -> None:
    """Creates and frees shared tensors. Their readers must unmap them."""
    settle()
    for i in range(8):
        with torch_ringdist.shared_memory():
            tensor = torch.full((1 << 18,), 1.0)
        for _ in range(2):
            dist.all_reduce(tensor)
            time.sleep(0.003)  # time to be exported
        expected = float(dist.get_world_size() ** 2)
        same_bits(tensor, torch.full_like(tensor, expected), f"tensor {i}")
        if how == "grows inside":
            with torch_ringdist.shared_memory():
                tensor.resize_(1 << 19)
            before = torch_ringdist.stats()["shared_bytes"]
            assert before >= 4 << 19
        elif how == "grows outside":
            tensor.resize_(1 << 19)
        if how != "freed":
            same_bits(tensor[: 1 << 18], torch.full((1 << 18,), expected), "what it had")
            dist.all_reduce(tensor.fill_(1))
            same_bits(tensor, torch.full_like(tensor, dist.get_world_size()), "larger")
        del tensor
    settle()


@shares_alone
@pytest.mark.parametrize("how", ["freed", "grows inside", "grows outside"])
def test_readers_unmap_what_is_freed(pools, how: str):
    pools(3).run(_gone, how)


def _frees_first() -> None:
    """Rank 1 frees a tensor, and rank 0, which is idle, unmaps it."""
    settle()
    with torch_ringdist.shared_memory():
        tensor = torch.ones(1 << 18)
    for _ in range(3):
        dist.all_reduce(tensor)
        time.sleep(0.003)
    dist.barrier()
    assert poll(lambda: mappings() == 2), "its own, and the other rank's"
    dist.barrier()
    if dist.get_rank() == 1:
        del tensor
    else:
        assert poll(lambda: mappings() == 1), mappings()
    dist.barrier()


@reads_in_place
@shares_alone
def test_an_idle_reader_unmaps_what_is_freed(pools):
    pools(2).run(_frees_first)


def _copies() -> None:
    with torch_ringdist.shared_memory():
        tensor = torch.arange(1 << 16, dtype=torch.float32)
    before = torch_ringdist.stats()["shared_tensors"]
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    copies = {
        "torch.save": torch.load(file, weights_only=True),
        "pickle": pickle.loads(pickle.dumps(tensor)),
        "clone": tensor.clone(),
        "deepcopy": copy.deepcopy(tensor),
    }
    assert torch_ringdist.stats()["shared_tensors"] == before
    for name, made in copies.items():
        same_bits(made, tensor, name)
        made.fill_(0)
        assert tensor[1] == 1, f"{name} is no copy"
        dist.all_reduce(made.fill_(1))
        assert made[0] == dist.get_world_size()
    moved = tensor.clone()
    moved.share_memory_()
    tensor.share_memory_()  # torch's own function, which also copies
    same_bits(tensor, torch.arange(1 << 16, dtype=torch.float32), "share_memory_")
    assert tensor.is_shared()
    dist.all_reduce(tensor)
    same_bits(tensor, moved * dist.get_world_size(), "all_reduce after share_memory_")
    view = tensor.numpy()
    view[0] = 5
    assert tensor[0] == 5


@shares_alone
def test_copies_are_usual_tensors(pools):
    pools(2).run(_copies)


def _again() -> None:
    """Within a region, freed memory is used again, which its readers have already mapped."""
    settle()
    with torch_ringdist.shared_memory():
        places, before = set(), read_in_place()
        for i in range(20):
            tensor = torch.full((1 << 18,), float(i))
            places.add(tensor.data_ptr())
            dist.all_reduce(tensor)
            size = dist.get_world_size()
            same_bits(tensor, torch.full_like(tensor, float(i * size)), f"tensor {i}")
            del tensor
        assert len(places) == 2, f"{len(places)} places for a tensor and what it is compared with"
        assert read_in_place() - before > 10 << 19, "it is read in place but at first"
    settle()


@reads_in_place
@shares_alone
def test_freed_memory_is_used_again_inside(pools):
    pools(2).run(_again)


def _where() -> None:
    def shared() -> int:
        return torch_ringdist.stats()["shared_tensors"]

    before = shared()
    with torch_ringdist.shared_memory():
        kept = [torch.empty(1 << 14), torch.empty((1 << 14) - 1), torch.empty(0), torch.zeros(5)]
        with torch_ringdist.shared_memory():
            kept.append(torch.zeros(1 << 16))
        kept.append(torch.ones(3, 1 << 16))
    assert shared() == before + 3, "64 KiB and more, also in a region within another"
    assert torch.equal(kept[4], torch.zeros(1 << 16))
    kept.append(torch.empty(1 << 20))
    assert shared() == before + 3
    with contextlib.suppress(KeyError), torch_ringdist.shared_memory():
        raise KeyError
    kept.append(torch.empty(1 << 20))
    assert shared() == before + 3, "an exception ends it"
    kept.clear()
    assert shared() == before


@shares_alone
def test_only_large_tensors_of_the_region(pools):
    pools(2).run(_where)


def _forked() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with torch_ringdist.shared_memory():
        tensor = torch.zeros(1 << 18)
        for _ in range(3):
            dist.all_reduce(tensor)
            time.sleep(0.003)
        pid = os.fork()
        if pid == 0:  # outside: its allocations are its own, like those of a DataLoader's worker
            tensor += rank + 1
            before = len(os.listdir("/proc/self/fd"))
            own = torch.ones(1 << 18)
            ok = len(os.listdir("/proc/self/fd")) == before
            ok = ok and bool(own.sum() == 1 << 18) and tensor[5] == rank + 1
            failed = caught(dist.all_reduce, tensor)
            del own, tensor
            os._exit(0 if ok and failed else 1)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    same_bits(tensor, torch.full((1 << 18,), rank + 1.0), "what the child wrote")
    dist.all_reduce(tensor)
    same_bits(tensor, torch.full((1 << 18,), size * (size + 1) / 2), "all_reduce")


def test_a_forked_child_writes_what_its_parent_sends(pools):
    pools(2).run(_forked)


def _network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(300, 1800), nn.ReLU(), nn.Linear(1800, 200)).double()


def _data(step: int, size: int) -> torch.Tensor:
    return torch.randn(
        size, 8, 300, generator=torch.Generator().manual_seed(step), dtype=torch.float64
    )


def _trains(kind: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    alone = _network()
    before = read_in_place()
    with torch_ringdist.shared_memory():
        model = _network()
        if kind == "ddp":
            model = DistributedDataParallel(model, bucket_cap_mb=2)
        else:
            for layer in model:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer)
            fully_shard(model)
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, alone)]
        for step in range(4):
            data = _data(step, size)
            model(data[rank]).square().mean().backward()
            alone(data.flatten(0, 1)).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        whole = ours.full_tensor() if kind == "fsdp" else ours
        torch.testing.assert_close(whole, theirs, rtol=1e-9, atol=1e-11)
    assert (read_in_place() > before) == READS_IN_PLACE


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("size", [2, 3])
def test_trains_as_one_process(pools, size: int, kind: str):
    pools(size).run(_trains, kind)


def _against_gloo() -> None:
    """Checks that bits do not depend on the place of tensors."""
    rank = dist.get_rank()
    random = torch.Generator().manual_seed(rank)
    given = torch.randn(300_007, generator=random)
    with torch_ringdist.shared_memory():
        shared = given.clone()
    for _ in range(3):
        usual = given.clone()
        shared.copy_(given)
        dist.all_reduce(usual)
        dist.all_reduce(shared)
        same_bits(shared, usual, "all_reduce")
        time.sleep(0.003)
    theirs = given.clone()
    dist.all_reduce(theirs, group=oracle())
    torch.testing.assert_close(shared, theirs)


def test_the_bits_are_those_of_usual_tensors(pools):
    pools(3).run(_against_gloo)
