"""Operations by name that are called wrongly, or with unusual arguments."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from support.horovod import begin, initialized
from support.rank import Ranks, caught, same_bits

import torch_ringdist.horovod as hvd
from torch_ringdist.horovod._sets import group_of


def _rank_and_size() -> tuple[int, int]:
    return hvd.rank(), hvd.size()


def _mistakes() -> None:
    raised = caught(hvd.rank)
    assert raised is not None and "hvd.init()" in raised.text
    with initialized():
        size = hvd.size()
        wrong = [
            (hvd.allreduce, (torch.ones(1),), {"op": hvd.Sum, "average": True}, "op and average"),
            (hvd.allreduce, (torch.ones(1),), {"op": 17}, "op must be"),
            (hvd.reducescatter, (torch.tensor(1.0),), {"op": hvd.Sum}, "scalar"),
            (hvd.alltoall, (torch.ones(size + 1),), {}, "divide"),
            (hvd.alltoall, (torch.ones(2), torch.ones(size)), {}, "int32"),
            (hvd.alltoall, (torch.ones(2), [2] * size), {}, "sum"),
            (hvd.broadcast, (torch.ones(1), size), {}, "root_rank"),
            (hvd.allreduce, (torch.ones(2, 2).to_sparse(),), {}, "Sparse"),
            (hvd.allreduce, (torch.ones(1, device="meta"),), {}, "device meta"),
        ]
        for function, args, named, text in wrong:
            raised = caught(function, *args, **named)
            assert raised is not None and {"ValueError", "TypeError"} & set(raised.kinds), raised
            assert text in raised.text, raised
        raised = caught(hvd.reducescatter, torch.ones(size), op=hvd.Max)
        assert raised is not None and "HorovodInternalError" in raised.kinds
        assert hvd.synchronize(12345) is None
        assert "cleared" in str(caught(hvd.poll, 12345))
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size, "nothing was sent"


@pytest.mark.parametrize("size", [2, 3])
def test_mistakes(pools, size: int):
    pools(size).run(_mistakes)


def _alltoall_in_the_background() -> None:
    with initialized():
        size = hvd.size()
        for splits in (None, [1] * size):
            result, received = hvd.synchronize(hvd.alltoall_async(torch.arange(size), splits))
            assert result.tolist() == [hvd.rank()] * size and received.tolist() == [1] * size


def test_alltoall_in_the_background(pools):
    pools(2).run(_alltoall_in_the_background)


def _again(times: int) -> None:
    for number in range(times):
        with initialized():
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size(), number
            hvd.init()  # no effect
    assert not hvd.is_initialized()
    hvd.shutdown()  # no effect


def test_begins_again(pools):
    pools(2).run(_again, 5)


def _places() -> None:
    with initialized():
        assert (hvd.rank(), hvd.size()) == (Ranks.rank, Ranks.launch.size)
        assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
        assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
        assert hvd.is_homogeneous() and hvd.is_initialized()
        assert not hvd.mpi_built() and hvd.gloo_enabled() and hvd.gloo_built()


def test_places(pools):
    pools(2).run(_places)


def _one_rank_errs() -> None:
    """Makes calls that one rank alone gets rejected, which have no effect elsewhere."""
    with initialized():
        rank, size = _rank_and_size()
        if rank == 1:
            sparse = torch.ones(2).to_sparse()
            for function in (hvd.allreduce, hvd.allgather, hvd.reducescatter):
                assert caught(function, sparse) is not None
            assert caught(hvd.reducescatter, torch.ones(2), op=hvd.Max) is not None
            assert caught(hvd.grouped_allgather, [torch.ones(2), sparse], "g") is not None
            assert caught(hvd.allreduce, torch.ones(2).to_sparse(), name="x") is not None
        for _ in range(2):
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
            assert hvd.allgather(torch.ones(1)).numel() == size
            assert hvd.reducescatter(torch.ones(size), op=hvd.Sum).item() == size
        assert hvd.grouped_allgather([torch.ones(1)] * 2, "g")[1].numel() == size
        assert hvd.allreduce(torch.ones(1), name="x", op=hvd.Sum).item() == size


def _backward_in_threads() -> None:
    """Runs threads with names of their own. The first of them differs from rank to rank."""
    with initialized():
        rank, size = _rank_and_size()
        gradients: dict[int, torch.Tensor] = {}

        def run(number: int) -> None:
            time.sleep(0.05 * ((rank + number) % 2))
            x = torch.ones(2, requires_grad=True)
            out = hvd.allreduce(x, name=f"thread.{number}", op=hvd.Sum)
            time.sleep(0.05 * ((rank + number + 1) % 2))
            (out * number).sum().backward()
            gradients[number] = x.grad

        threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(gradients) == 2
        for number, gradient in gradients.items():
            same_bits(gradient, torch.full((2,), float(size * number)), str(number))


def _second_order() -> None:
    with initialized():
        size = hvd.size()
        x = torch.tensor([3.0], requires_grad=True)
        y = hvd.allreduce(x, op=hvd.Sum)  # size * 3
        [first] = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        [second] = torch.autograd.grad(first.sum(), x)
        assert first.item() == 2 * size * size * 3 and second.item() == 2 * size**2


def _dropped_handles() -> None:
    with initialized():
        named = hvd.global_process_set
        group = group_of(named, "test")
        for _ in range(3):
            work = group.named.allreduce("d", [torch.ones(2)], [torch.empty(2)], "sum")
            del work  # no wait follows
            while True:
                raised = caught(hvd.allreduce, torch.ones(2), name="d")
                if raised is None:
                    break
                assert "is taken" in raised.text, raised
                time.sleep(0.01)
            hvd.barrier()


def _strange_tensors() -> None:
    with initialized():
        rank, size = _rank_and_size()
        base = torch.arange(6.0).reshape(2, 3)
        same_bits(hvd.allgather(base.T), torch.cat([base.T] * size), "not contiguous")
        same_bits(hvd.allreduce(base.T, op=hvd.Sum), base.T * size, "not contiguous")
        view = torch.zeros(4, 2)[:, 0]
        view.fill_(rank)
        hvd.allreduce_(view, op=hvd.Sum)
        assert view.tolist() == [sum(range(size))] * 4
        hvd.broadcast_(view[::2], 0)
        same_bits(hvd.allreduce(torch.empty(0)), torch.empty(0), "nothing")
        same_bits(hvd.allreduce(torch.tensor(2.0)), torch.tensor(2.0), "a scalar")
        same_bits(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3), "no rows at all")
        flags = torch.tensor([rank == 0, False])
        assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, False]
        assert hvd.broadcast(flags, 0).tolist() == [True, False]
        parameter = torch.nn.Parameter(torch.ones(2))
        hvd.allreduce_(parameter.data, op=hvd.Sum)
        hvd.broadcast_(parameter, 0)
        same_bits(parameter.detach(), torch.full((2,), float(size)), "a parameter")
        twice = torch.ones(2)
        hvd.grouped_allreduce_([twice, twice], op=hvd.Sum, postscale_factor=0.5)
        same_bits(twice, torch.full((2,), size / 2), "there twice")
        with torch.inference_mode():
            frozen = torch.ones(2)
            handle = hvd.allreduce_async_(frozen, op=hvd.Sum, postscale_factor=2.0)
        hvd.synchronize(handle)
        assert frozen.tolist() == [2.0 * size] * 2
        before = torch.full((2,), 3.0)
        raised = caught(
            hvd.allreduce_, before, name="m", op=hvd.Sum if rank else hvd.Max, prescale_factor=2.0
        )
        assert raised is not None
        same_bits(before, torch.full((2,), 3.0), "after a disagreement")


def _uneven_alltoall() -> None:
    """Sends equal numbers of rows to each rank, but different numbers from each."""
    with initialized():
        rank, size = _rank_and_size()
        x = torch.arange(float((rank + 1) * size), requires_grad=True)
        out = hvd.alltoall(x)
        assert out.numel() == sum(range(1, size + 1))
        (out * (rank + 1)).sum().backward()
        expected = torch.arange(1.0, size + 1).repeat_interleave(rank + 1)
        same_bits(x.grad, expected, "rows came back to where they were from")


def _wrong_inits() -> None:
    for settings, text in [
        ({"comm": [0]}, "comm must be"),
        ({"process_sets": [hvd.ProcessSet([0, 7])]}, "must be 0 to"),
    ]:
        raised = caught(begin, **settings)
        assert raised is not None and text in raised.text, raised
        assert not hvd.is_initialized()
    with initialized(process_sets="dynamic", comm=list(range(Ranks.launch.size))):
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


@pytest.mark.parametrize(
    "function",
    [
        _one_rank_errs,
        _backward_in_threads,
        _second_order,
        _dropped_handles,
        _strange_tensors,
        _uneven_alltoall,
        _wrong_inits,
    ],
)
def test_corners(pools, function):
    pools(3).run(function)
