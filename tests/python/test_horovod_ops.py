"""Operations called by name, and their gradients."""

from __future__ import annotations

import pytest
import torch
from support.horovod import initialized
from support.rank import caught, same_bits

import torch_ringdist.horovod as hvd

SIZES = [1, 2, 3]


def _rank_and_size() -> tuple[int, int]:
    return hvd.rank(), hvd.size()


def _reductions() -> None:
    with initialized():
        rank, size = _rank_and_size()
        values = [torch.arange(5.0) + r for r in range(size)]
        mine = values[rank]
        stacked = torch.stack(values)
        same_bits(hvd.allreduce(mine), stacked.sum(0) / size, "average")
        same_bits(hvd.allreduce(mine, average=False), stacked.sum(0), "average=False")
        same_bits(hvd.allreduce(mine, op=hvd.Sum, name="x"), stacked.sum(0), "sum")
        same_bits(hvd.allreduce(mine, op=hvd.Min), stacked.amin(0), "min")
        same_bits(hvd.allreduce(mine, op=hvd.Max), stacked.amax(0), "max")
        same_bits(hvd.allreduce(mine, op=hvd.Product), stacked.prod(0), "product")
        same_bits(mine, values[rank], "the input")
        assert hvd.allreduce_(mine, op=hvd.Sum) is mine
        same_bits(mine, stacked.sum(0), "in place")


def _factors() -> None:
    with initialized():
        _, size = _rank_and_size()
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            one = torch.full((3,), 3.0, dtype=dtype)
            out = hvd.allreduce(one, op=hvd.Sum, prescale_factor=0.1, postscale_factor=0.3)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            scaled = (one.to(wide) * 0.1).to(dtype)
            total = scaled.clone()
            for _ in range(size - 1):
                total = (total.to(wide) + scaled.to(wide)).to(dtype)
            same_bits(out, (total.to(wide) * 0.3).to(dtype), str(dtype))
            same_bits(one, torch.full((3,), 3.0, dtype=dtype), "the input")
        whole = torch.tensor([7, -7])
        out = hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.5)
        same_bits(out, torch.tensor([3, -3]) * size, "integers truncate")
        hvd.allreduce_(whole, op=hvd.Sum, postscale_factor=1 / (2 * size))
        same_bits(whole, torch.tensor([3, -3]), "integers truncate after the sum")


def _grouped() -> None:
    with initialized():
        rank, size = _rank_and_size()
        total = sum(range(size))
        mine = [torch.full((n,), rank, dtype=t) for n, t in ((2, torch.float32), (3, torch.int64))]
        for out in hvd.grouped_allreduce(mine, op=hvd.Sum, name="two"):
            assert out.tolist() == [total] * len(out)
        hvd.grouped_allreduce_(mine, op=hvd.Sum)
        assert [one[0].item() for one in mine] == [total, total]
        a, b = hvd.grouped_allgather([torch.tensor([rank]), torch.full((2, 2), float(rank))])
        assert a.tolist() == list(range(size)) and b.shape == (2 * size, 2)
        [c] = hvd.grouped_reducescatter([torch.ones(size)], op=hvd.Sum)
        assert c.tolist() == [size]


def _movements() -> None:
    with initialized():
        rank, size = _rank_and_size()
        rows = torch.full((rank + 1, 2), rank)
        gathered = torch.cat([torch.full((r + 1, 2), r) for r in range(size)])
        same_bits(hvd.allgather(rows), gathered, "allgather")
        same_bits(hvd.allgather(torch.tensor(rank)), torch.arange(size), "of scalars")
        same_bits(hvd.allgather(rows[:0] if rank else rows), torch.full((1, 2), 0), "no rows")
        last = size - 1
        mine = torch.full((3,), float(rank))
        same_bits(hvd.broadcast(mine, last), torch.full((3,), float(last)), "broadcast")
        assert mine[0] == rank
        assert hvd.broadcast_(mine, last, name="b") is mine and mine[0] == last
        same_bits(
            hvd.alltoall(torch.full((size, 2), rank)),
            torch.arange(size).repeat_interleave(2).reshape(size, 2),
            "alltoall",
        )
        splits = torch.arange(1, size + 1, dtype=torch.int32)
        out, received = hvd.alltoall(torch.full((int(splits.sum()),), rank), splits)
        same_bits(received, torch.full((size,), rank + 1, dtype=torch.int32), "received splits")
        same_bits(out, torch.arange(size).repeat_interleave(rank + 1), "alltoall with splits")
        part = hvd.reducescatter(torch.arange(5.0).reshape(5, 1), op=hvd.Sum)
        rows_of = [5 // size + (r < 5 % size) for r in range(size)]
        begin = sum(rows_of[:rank])
        expected = torch.arange(5.0)[begin : begin + rows_of[rank]].reshape(-1, 1) * size
        same_bits(part, expected, "reducescatter")
        assert hvd.broadcast_object({"a": rank}, last) == {"a": last}
        assert hvd.broadcast_object_fn(0)([rank]) == [0]
        assert hvd.allgather_object((rank, "x" * rank)) == [(r, "x" * r) for r in range(size)]


def _sparse() -> None:
    with initialized():
        rank, size = _rank_and_size()
        mine = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, 2.0], (size + 1,))
        out = hvd.sparse_allreduce_async(mine, "s", hvd.Average)().coalesce().to_dense()
        expected = torch.full((size + 1,), 2.0 / size)
        expected[0] = 1
        torch.testing.assert_close(out, expected)


def _adasum() -> None:
    with initialized():
        rank, size = _rank_and_size()
        apart = torch.zeros(size)
        apart[rank] = rank + 1.0
        same_bits(hvd.allreduce(apart, op=hvd.Adasum), torch.arange(1.0, size + 1), "orthogonal")
        along = torch.tensor([2.0, -4.0])
        same_bits(hvd.allreduce(along, op=hvd.Adasum), along, "parallel")
        same_bits(hvd.allreduce(torch.zeros(3), op=hvd.Adasum), torch.zeros(3), "zeros")


@pytest.mark.parametrize("size", [4, 5])
def test_adasum_of_any_number(pools, size: int):
    pools(size).run(_adasum)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "function", [_reductions, _factors, _grouped, _movements, _sparse, _adasum]
)
@pytest.mark.check
def test_results(pools, size: int, function):
    pools(size).run(function)


def _gradients() -> None:
    with initialized():
        rank, size = _rank_and_size()

        def gradient(make, x: torch.Tensor) -> torch.Tensor:
            x.requires_grad_()
            out = make(x)
            (out * (rank + 1)).sum().backward()
            return x.grad

        weights = torch.arange(1.0, size + 1)
        mean = float(weights.mean())
        ones = torch.ones
        same_bits(gradient(hvd.allreduce, ones(2)), torch.full((2,), mean), "allreduce")
        same_bits(
            gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), ones(2)),
            torch.full((2,), float(weights.sum())),
            "sum",
        )
        same_bits(gradient(hvd.allgather, ones(rank + 1)), torch.full((rank + 1,), mean), "gather")
        at_root = torch.full((2,), mean if rank == 0 else 0.0)
        same_bits(gradient(lambda x: hvd.broadcast(x, 0), ones(2)), at_root, "broadcast")
        same_bits(gradient(hvd.alltoall, ones(size)), weights, "alltoall")
        splits = torch.ones(size, dtype=torch.int32)
        same_bits(gradient(lambda x: hvd.alltoall(x, splits)[0], ones(size)), weights, "splits")
        # Rows beyond the splits stay on this rank.
        unsent = torch.zeros(rank)
        more = gradient(lambda x: hvd.alltoall(x, splits.long())[0], ones(size + rank))
        same_bits(more, torch.cat([weights, unsent]), "rows that are not sent")
        same_bits(gradient(hvd.reducescatter, ones(size)), weights, "reducescatter")
        same_bits(
            gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), ones(size)),
            weights * size,
            "reducescatter of a sum",
        )


@pytest.mark.parametrize("size", SIZES)
def test_gradients(pools, size: int):
    pools(size).run(_gradients)


def _join(with_device: bool) -> None:
    with initialized():
        # Horovod's own tests name the device like this, even where there is none.
        device = [hvd.local_rank()] if with_device and not torch.cuda.is_available() else []
        rank, size = _rank_and_size()
        for phase in range(2):
            for step in range(rank + 1):
                there = size - step
                out = hvd.allreduce(torch.ones(2), op=hvd.Sum)
                assert out[0] == there, (phase, step)
                assert hvd.allreduce(torch.full((2,), float(size)))[0] == there
                assert hvd.allreduce(torch.tensor([-5]), op=hvd.Max).item() == -5
                hvd.barrier()
            if rank == size - 1:
                raised = caught(hvd.broadcast, torch.ones(1), 0)
                assert raised is not None and "HorovodInternalError" in raised.kinds, raised
                assert "has joined" in raised.text
            assert hvd.join(*device) == size - 1
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum)[0] == size, "counts are alike again"


@pytest.mark.parametrize(("size", "with_device"), [(2, False), (3, False), (3, True)])
def test_join(pools, size: int, with_device: bool):
    pools(size).run(_join, with_device)


def _sets() -> None:
    pair = hvd.ProcessSet([0, 2])
    with initialized(process_sets=[pair]):
        rank, _ = _rank_and_size()
        assert pair.included() == (rank != 1) and pair.size() == 2
        other = hvd.add_process_set([1, 2])
        assert hvd.get_process_set_ids_and_ranks() == {0: [0, 1, 2], 1: [0, 2], 2: [1, 2]}
        # Two sets that share a rank, each with its own order.
        handles = {}
        for one in (pair, other) if rank != 2 else (other, pair):
            if one.included():
                handles[one.process_set_id] = hvd.allreduce_async(
                    torch.tensor([float(rank)]), op=hvd.Sum, process_set=one
                )
        sums = {number: hvd.synchronize(handle).item() for number, handle in handles.items()}
        assert sums == {n: s for n, s in ((1, 2.0), (2, 3.0)) if n in handles}
        if rank == 1:
            raised = caught(hvd.allreduce, torch.ones(1), process_set=pair)
            assert raised is not None and "ValueError" in raised.kinds and "not in" in raised.text
        else:
            assert pair.rank() == rank // 2
            assert hvd.broadcast(torch.tensor([rank]), 2, process_set=pair).item() == 2
        raised = caught(hvd.add_process_set, [0, 2])
        assert raised is not None and "already" in raised.text
        raised = caught(hvd.add_process_set, [0] if rank else [0, 1])
        assert raised is not None and "all must give the same" in raised.text, raised
        raised = caught(hvd.remove_process_set, other if rank else pair)
        assert raised is not None and "rank 0 gives" in raised.text, raised
        assert hvd.remove_process_set(other)
        assert not hvd.remove_process_set(other)
        assert caught(hvd.remove_process_set, hvd.global_process_set) is not None
        raised = caught(other.size)
        assert raised is not None and "not registered" in raised.text
    assert pair.process_set_id is None


def test_process_sets(pools):
    pools(3).run(_sets)
