"""Operations by name with CUDA tensors, and training with them."""

from __future__ import annotations

import random
import threading
import time

import pytest
import torch
from support.gpu import needs_gpu
from support.horovod import begin, initialized
from support.rank import Raised, caught, same_bits

import torch_ringdist.horovod as hvd

pytestmark = needs_gpu
COUNT = 1 << 20
LONG = 400_000_000  # cycles: a fifth of a second or more


def _device() -> torch.device:
    device = torch.device("cuda", hvd.rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _operations() -> None:
    with initialized():
        rank, size, device = hvd.rank(), hvd.size(), _device()
        last = size - 1
        values = torch.stack([torch.arange(5.0) + r for r in range(size)])
        for op, expected in (
            (hvd.Sum, values.sum(0)),
            (hvd.Average, values.sum(0) / size),
            (hvd.Min, values.amin(0)),
            (hvd.Max, values.amax(0)),
            (hvd.Product, values.prod(0)),
        ):
            same_bits(hvd.allreduce(values[rank].to(device), op=op).cpu(), expected, op.name)
        half = torch.full((3,), 3.0, dtype=torch.float16, device=device)
        out = hvd.allreduce(half, op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0)
        same_bits(out.cpu(), torch.full((3,), 3.0 * size, dtype=torch.float16), "factors")
        columns = values.to(device).t()
        expected = columns.cpu() * size
        hvd.allreduce_(columns, op=hvd.Sum)
        same_bits(columns.cpu(), expected, "columns")
        mixed = [torch.ones(3, device=device), torch.ones(2, dtype=torch.int64, device=device)]
        for one in hvd.grouped_allreduce(mixed, op=hvd.Sum):
            assert one.is_cuda and one.tolist() == [size] * len(one)

        rows = torch.full((rank + 1, 2), rank, device=device)
        gathered = torch.cat([torch.full((r + 1, 2), r) for r in range(size)])
        same_bits(hvd.allgather(rows).cpu(), gathered, "allgather")
        mine = torch.full((3,), float(rank), device=device)
        same_bits(hvd.broadcast(mine, last).cpu(), torch.full((3,), float(last)), "broadcast")
        splits = torch.arange(1, size + 1, dtype=torch.int32)
        out, received = hvd.alltoall(torch.full((int(splits.sum()),), rank, device=device), splits)
        same_bits(received, torch.full((size,), rank + 1, dtype=torch.int32), "received splits")
        same_bits(out.cpu(), torch.arange(size).repeat_interleave(rank + 1), "alltoall")
        part = hvd.reducescatter(torch.ones(2 * size + 1, 2, device=device), op=hvd.Sum)
        same_bits(part.cpu(), torch.full((2 + (rank < 1), 2), float(size)), "reducescatter")
        apart = torch.zeros(size, device=device)
        apart[rank] = 2.0
        same_bits(hvd.allreduce(apart, op=hvd.Adasum).cpu(), torch.full((size,), 2.0), "Adasum")
        sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,), device=device)
        dense = hvd.sparse_allreduce_async(sparse, "s", hvd.Sum)().coalesce().to_dense()
        same_bits(dense.cpu(), torch.ones(size), "sparse")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_operations(pools, size: int):
    pools(size).run(_operations, timeout=120)


def _any_order(seed: int) -> None:
    """Calls from three threads, with tensors of both devices, in another order on each rank."""
    with initialized():
        rank, size, device = hvd.rank(), hvd.size(), _device()
        wrong: list[str] = []

        def calls(thread: int) -> None:
            torch.cuda.set_device(device)
            order = list(range(40))
            random.Random(seed * 100 + rank * 10 + thread).shuffle(order)
            handles = {}
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in order:
                    where = "cpu" if i % 4 == 0 else device
                    one = torch.full((1 + 1000 * (i % 5),), float(i + rank), device=where)
                    name = f"{thread}.{i}"
                    handles[i] = hvd.allreduce_async_(one, op=hvd.Sum, name=name)
                for i, handle in handles.items():
                    out = hvd.synchronize(handle) + 0
                    if not out.eq(size * i + size * (size - 1) // 2).all():
                        wrong.append(f"{thread}.{i}: {out[:3]}")

        threads = [threading.Thread(target=calls, args=(t,)) for t in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong


@pytest.mark.parametrize("size", [2, 3])
def test_any_order(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_any_order, seed, timeout=120)


def _streams() -> None:
    """Data that a stream has not computed yet is awaited on the device, not by the host."""
    with initialized():
        device = _device()
        hvd.allreduce(torch.ones(COUNT, device=device), name="warm-up")
        torch.cuda.synchronize()
        tensor = torch.zeros(COUNT, device=device)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(LONG)
            tensor.fill_(2)
            now = torch.cuda.Event()
            now.record()
            handle = hvd.allreduce_async(tensor, name="late")
            assert not now.query(), "something blocked the host"
        assert hvd.synchronize(handle).eq(2).all()


def test_a_call_comes_after_its_stream(pools):
    pools(2).run(_streams, timeout=120)


def _mistakes() -> list[Raised]:
    with initialized():
        device = _device()
        here, there = torch.ones(3), torch.ones(3, device=device)
        one = here if hvd.rank() == 0 else there
        out = [caught(lambda: hvd.allreduce(one, name="x"))]
        out.append(caught(lambda: hvd.grouped_allreduce([here, there], name="y")))
        assert hvd.allreduce(there, name="x").eq(1).all()
        assert hvd.allreduce(here, name="y").eq(1).all()
        return out


def test_mistakes_are_named_and_the_job_goes_on(pools):
    for one, several in pools(2).run(_mistakes, timeout=120):
        assert one.kinds[0] == "HorovodInternalError", one
        assert "on cpu" in one.text and "on cuda" in one.text, one
        assert "ValueError" in several.kinds, several
        assert "several devices" in several.text, several


def _join() -> None:
    with initialized():
        rank, size, device = hvd.rank(), hvd.size(), _device()
        for step in range(1 + rank):
            out = hvd.grouped_allreduce(
                [torch.ones(n, device=device) for n in (3, 5)], op=hvd.Sum, name="x"
            )
            assert all(one.eq(size - step).all() for one in out), out
            top = hvd.allreduce(torch.full((2,), -1.0 - rank, device=device), op=hvd.Max, name="m")
            assert top.eq(-1.0 - step).all(), top
        last = hvd.join(device.index)
        assert last == size - 1


def test_who_has_joined_gives_zeros(pools):
    pools(3).run(_join, timeout=120)


def _net(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10)]
    return torch.nn.Sequential(*layers).to(device)


def _train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    noise = torch.Generator().manual_seed(hvd.rank())
    device, losses = next(net.parameters()).device, []
    for _ in range(steps):
        inputs = torch.randn(128, 64, generator=noise)
        target = inputs[:, :10].argmax(1).to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs.to(device)), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _optimizer(codec: str | None) -> None:
    with initialized():
        net = _net(_device())
        hvd.broadcast_parameters(net.state_dict(), 0)
        settings = {"compression": codec} if codec else {}
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8)
        optimizer = hvd.DistributedOptimizer(sgd, net.named_parameters(), **settings)
        losses = _train(net, optimizer, 80)
        assert losses[-1] < 0.6 * losses[0], losses
        for name, p in net.named_parameters():
            same_bits(hvd.broadcast(p.detach(), 0), p.detach(), name)
        hvd.broadcast_optimizer_state(optimizer, 0)


@pytest.mark.parametrize("codec", [None, "int8", "int4"])
def test_an_optimizer_trains(pools, codec: str | None):
    pools(2).run(_optimizer, codec, timeout=120)


def _batch_norm() -> None:
    with initialized():
        rank, device = hvd.rank(), _device()
        whole = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(1)).to(device)
        norm, plain = hvd.SyncBatchNorm(3).to(device), torch.nn.BatchNorm1d(3).to(device)
        mine = slice(0, 2) if rank == 0 else slice(2, 6)
        torch.testing.assert_close(norm(whole[mine]), plain(whole)[mine])


def test_sync_batch_norm(pools):
    pools(2).run(_batch_norm, timeout=120)


def _until_it_fails() -> Raised:
    begin()
    ours = torch.ones(COUNT, device=_device())
    while True:
        raised = caught(lambda: hvd.allreduce(ours, name="x"))
        if raised:
            hvd.shutdown()
            return raised


def test_a_killed_rank_is_named(fresh_pool):
    pool = fresh_pool(3)
    pool.start(_until_it_fails)
    time.sleep(8)  # contexts of the GPU, and some rounds
    killed = pool.kill(1)
    for rank, raised in pool.collect(30, without=(1,)).items():
        print(f"rank {rank}: {raised.at - killed:.3f} s after the signal: {raised.text}")
        assert raised.kinds[0] == "HorovodInternalError", raised
        assert "rank 1" in raised.text, raised
