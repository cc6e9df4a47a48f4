"""CUDA tensors and streams: dependences, and lifetime of memory."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from support.gpu import my_device, needs_gpu, needs_nccl_of
from support.rank import Raised, caught, new_group

import torch_ringdist

pytestmark = needs_gpu
LONG = 400_000_000  # cycles: a fifth of a second or more
COUNT = 1 << 20


def _sum_after(cycles: int, tensor: torch.Tensor) -> torch.cuda.Event:
    """Sums a tensor that is written after this many cycles, and uses the result. Returns an
    event."""
    torch.cuda._sleep(cycles)
    tensor.fill_(1)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    tensor *= 2
    end = torch.cuda.Event()
    end.record()
    return end


def _wait_does_not_block() -> None:
    tensor = torch.zeros(COUNT, device=my_device())
    _sum_after(1, tensor).synchronize()  # the first launches load kernels, which blocks
    end = _sum_after(LONG, tensor)
    assert not end.query(), "something blocked the host"
    assert tensor.eq(2 * dist.get_world_size()).all()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_wait_orders_the_stream_and_not_the_host(pools, size: int):
    pools(size).run(_wait_does_not_block)


def _own_streams() -> None:
    size, device = dist.get_world_size(), my_device()
    streams = [torch.cuda.Stream() for _ in range(4)]
    for round in range(20):
        results = []
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000 * (i + 1))
                tensor = torch.full((COUNT,), float(round + i), device=device)
                dist.all_reduce(tensor)
                results.append((tensor * 2, 2 * size * (round + i)))
        torch.cuda.synchronize()
        for tensor, wanted in results:
            assert tensor.eq(wanted).all(), f"round {round}: {tensor[:4]}, expected {wanted}"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_calls_on_several_streams(pools, size: int):
    pools(size).run(_own_streams)


def _dropped_at_once() -> None:
    size, device = dist.get_world_size(), my_device()
    for round in range(30):
        inputs = [torch.full((COUNT,), float(i + round), device=device) for i in range(4)]
        outputs = [torch.empty(COUNT * size, device=device) for _ in inputs]
        works = [
            dist.all_gather_into_tensor(whole, part, async_op=True)
            for whole, part in zip(outputs, inputs, strict=True)
        ]
        del inputs  # the group keeps them alive
        torch.full((4 * COUNT,), -1.0, device=device)
        for i, (work, whole) in enumerate(zip(works, outputs, strict=True)):
            work.wait()
            assert whole.eq(i + round).all(), f"round {round}, call {i}"


def test_memory_is_kept_until_the_device_has_done_with_it(pools):
    pools(2).run(_dropped_at_once)


def _both_devices() -> None:
    size, device = dist.get_world_size(), my_device()
    for round in range(20):
        here, there = torch.full((1000,), 1.0 + round), torch.full((1000,), 2.0, device=device)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in (here, there)]
        dist.barrier()
        for work in works:
            work.wait()
        assert here.eq((1 + round) * size).all(), here[:4]
        assert there.eq(2 * size).all(), there[:4]
    error = caught(
        dist.all_gather, [torch.ones(2), torch.ones(2, device=device)][:size], torch.ones(2)
    )
    assert size == 1 or (error and "cuda" in error.text), f"{error}"
    dist.all_reduce(there := torch.ones(3, device=device))
    assert there.eq(size).all(), "the group is not usable after a refusal"


@pytest.mark.parametrize("size", [1, 2])
def test_cpu_and_cuda_in_one_group(pools, size: int):
    pools(size).run(_both_devices)


def _captured() -> None:
    size, device = dist.get_world_size(), my_device()
    group = new_group(pg_options=torch_ringdist.Options(device_path="nccl"))
    tensor = torch.ones(COUNT, device=device)
    dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.fill_(1)
        tensor *= 2
        dist.all_reduce(tensor, group=group)
        tensor += 1
    for _ in range(5):
        graph.replay()
        torch.cuda.synchronize()
        assert tensor.eq(2 * size + 1).all(), tensor[:4]
    del graph
    dist.destroy_process_group(group)


@pytest.mark.parametrize("size", [1, 2])
def test_a_graph_captures_collectives_of_nccl(pools, size: int):
    needs_nccl_of(size)
    pools(size).run(_captured)


def _not_captured() -> None:
    size, device = dist.get_world_size(), my_device()
    group = new_group(pg_options=torch_ringdist.Options(device_path="host"))
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    error = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            tensor.fill_(1)
            error = caught(dist.all_reduce, tensor, group=group)
    except RuntimeError:
        pass  # the capture itself may be lost
    assert error and "captur" in error.text, error
    torch.cuda.synchronize()
    dist.all_reduce(tensor.fill_(1), group=group)
    assert tensor.eq(size).all(), "the group is not usable after a refusal"


def test_a_graph_cannot_capture_what_goes_by_the_host(pools):
    pools(2).run(_not_captured)


def _until_it_fails() -> Raised:
    tensor = torch.ones(COUNT, device=my_device())
    while not (error := caught(_once, tensor)):
        pass
    return error


def _once(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor.fill_(1))
    torch.cuda.synchronize()


@pytest.mark.parametrize("size", [2, 4])
def test_a_killed_rank_is_named(fresh_pool, size: int):
    pool = fresh_pool(size)
    pool.start(_until_it_fails)
    time.sleep(8)  # contexts of the GPU, and some rounds
    begin = pool.kill(size - 1)
    for rank, error in pool.collect(30, without=(size - 1,)).items():
        print(f"rank {rank}: {error.at - begin:.3f} s after the signal: {error.text}")
        assert f"rank {size - 1} (" in error.text, error
        assert error.at - begin < 1, f"rank {rank} after {error.at - begin:.2f} s"


def _stopped(absent: int) -> Raised | None:
    tensor = torch.ones(COUNT, device=my_device())
    group = new_group(seconds=2)
    dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    if dist.get_rank() == absent:
        os.kill(os.getpid(), signal.SIGSTOP)
    error = caught(lambda: (dist.all_reduce(tensor, group=group), torch.cuda.synchronize()))
    return error or caught(dist.all_reduce, tensor, group=group)


def test_a_stopped_rank_ends_in_a_timeout(fresh_pool):
    pool = fresh_pool(2)
    pool.start(_stopped, 1)
    error = pool.collect(30, without=(1,))[0]
    assert error and "rank 1" in error.text, error
