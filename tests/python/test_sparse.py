"""all_reduce of sparse (COO) tensors."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, caught, same_bits

AVG, SUM = dist.ReduceOp.AVG, dist.ReduceOp.SUM


def entries(seed: int, rank: int, count: int, dense: tuple[int, ...], dtype: torch.dtype):
    """Returns a sparse tensor of small integers, with repeated indices."""
    noise = torch.Generator().manual_seed(seed + rank)
    indices = torch.randint(0, 6, (2, count), generator=noise)
    values = torch.randint(-20, 20, (count, *dense), generator=noise)
    return torch.sparse_coo_tensor(indices, values.to(dtype), (6, 7, *dense))


def _sums(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.int64):
        for dense in ((), (3,)):
            for counts in ([4] * size, [0] * size, [0, 50, 7][:size]):
                all_ranks = [
                    entries(seed, r, counts[r], dense, dtype).to_dense() for r in range(size)
                ]
                total = torch.stack(all_ranks).sum(0, dtype=dtype)
                tensor = entries(seed, rank, counts[rank], dense, dtype)
                dist.all_reduce(tensor)
                assert tensor.is_sparse and tensor.is_coalesced()
                same_bits(tensor.to_dense(), total, f"sum of {counts} {dtype} {dense}")
                average = entries(seed, rank, counts[rank], dense, dtype)
                dist.all_reduce(average, AVG)
                rounding = None if dtype.is_floating_point else "trunc"
                expected = total.div(size, rounding_mode=rounding)
                same_bits(average.to_dense(), expected, f"average of {counts} {dtype}")


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.check
def test_sums_and_averages(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_sums, seed)


def _asynchronous(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [entries(seed + i, rank, 10, (2,), torch.float32) for i in range(8)]
    works = []
    for tensor in tensors:
        works.append(dist.all_reduce(tensor, async_op=True))
        works.append(dist.all_reduce(torch.ones(100), async_op=True))
    assert works[0].get_future().wait()[0] is not None
    for work in works[::-1]:
        work.wait()
        assert work.is_completed() and work.is_success()
    for i, tensor in enumerate(tensors):
        expected = sum(
            entries(seed + i, r, 10, (2,), torch.float32).to_dense() for r in range(size)
        )
        same_bits(tensor.to_dense(), expected, f"tensor {i}")
    assert works[0].result()[0].is_sparse


def test_several_at_once_beside_dense_ones(pools):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(3).run(_asynchronous, seed)


def _disagree() -> Raised | None:
    rank = dist.get_rank()
    tensor = torch.sparse_coo_tensor([[0], [1]], [1.0], (4, 4 + rank))
    error = caught(dist.all_reduce, tensor)
    dist.all_reduce(torch.ones(3))
    return error


def test_shapes_that_differ(pools):
    for error in pools(2).run(_disagree):
        assert error and "DistBackendError" in error.kinds, error
        assert "rank 0 gave float32[4, 4]" in error.text, error
        assert "rank 1 gave float32[4, 5]" in error.text, error


def _refused() -> list[Raised | None]:
    tensor = torch.eye(3).to_sparse()
    # PyTorch rejects other layouts earlier.
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    return [
        caught(dist.all_reduce, tensor, dist.ReduceOp.MAX),
        caught(backend.allreduce, [torch.eye(3).to_sparse_csr()], dist.AllreduceOptions()),
        caught(dist.all_reduce, torch.eye(3, dtype=torch.complex64).to_sparse(), dist.ReduceOp.BOR),
    ]


def test_what_is_refused(pools):
    for maximum, rows, bits in pools(2).run(_refused):
        assert maximum and "unsupported reduction operation MAX" in maximum.text, maximum
        assert rows and "unsupported layout" in rows.text, rows
        assert bits, "BOR of sparse complex numbers"


def _waits_in_a_callback() -> None:
    tensor = torch.eye(3).to_sparse()
    work = dist.all_reduce(tensor, async_op=True)
    done = work.get_future().then(lambda future: work.wait() and future.value()[0].to_dense())
    same_bits(done.wait(), torch.eye(3) * dist.get_world_size(), "seen by a callback")


def test_a_callback_may_wait_for_its_own_work(pools):
    pools(2).run(_waits_in_a_callback)


def _halves() -> None:
    """Sums halves, which are added in fp32, like in the kernels."""
    size = dist.get_world_size()
    large = torch.full((2, 2), 40_000.0, dtype=torch.float16).to_sparse()
    dist.all_reduce(large, dist.ReduceOp.AVG)
    same_bits(large.to_dense(), torch.full((2, 2), 40_000.0, dtype=torch.float16), "AVG")
    given = 256.0 if dist.get_rank() == 0 else 1.0
    small = torch.full((3,), given, dtype=torch.bfloat16).to_sparse()
    dist.all_reduce(small)
    wanted = torch.full((3,), 256.0 + size - 1).bfloat16()
    same_bits(small.to_dense(), wanted, "SUM")


def test_halves_are_added_up_in_fp32(pools):
    pools(3).run(_halves)


def _unknown_to_sparse_tensors() -> list[str]:
    names = ["float8_e4m3fn", "uint16"]
    given = [torch.sparse_coo_tensor([[0]], torch.zeros(1).to(getattr(torch, n))) for n in names]
    return [str(caught(dist.all_reduce, tensor)) for tensor in given]


def test_dtypes_that_cannot_be_added_up(pools):
    for errors in pools(2).run(_unknown_to_sparse_tensors):
        for error in errors:
            assert "NotSupportedError" in error and "supported: float64" in error, error
