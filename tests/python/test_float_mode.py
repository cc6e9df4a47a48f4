"""Subnormal numbers keep their bits, whatever floating-point mode a caller has set."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from support.rank import Ranks, init, same_bits

from torch_ringdist import _native

TINY = 1e-40  # a subnormal float32
COUNT = 3000
ROWS, COLUMNS = 40, 30


@pytest.fixture
def flush_denormal():
    """Enables torch.set_flush_denormal in this thread, and disables it after the test."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals to zero")
    torch.set_flush_denormal(False)
    yield torch.set_flush_denormal
    torch.set_flush_denormal(False)


def _is_flushed() -> bool:
    # torch's own comparisons would flush the values that they read.
    return (torch.full((1,), TINY) + 0).view(torch.int32).item() == 0


def _tiny(times: int = 1) -> torch.Tensor:
    return torch.full((COUNT,), TINY).mul(times)


def _sum_with_one_rank_in_flush_mode(times: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [_tiny() for _ in range(times)]  # in flush mode they would be zero
    torch.set_flush_denormal(rank == 1)
    for tensor in tensors:
        dist.all_reduce(tensor)
    assert _is_flushed() == (rank == 1), "a call has changed the mode of its caller"
    torch.set_flush_denormal(False)
    for tensor in tensors:
        same_bits(tensor, _tiny(size), "all_reduce driven by its caller")


def test_whoever_drives_the_result_is_the_same(pools, flush_denormal):
    pools(2).run(_sum_with_one_rank_in_flush_mode, 20)


def _sums_after_a_start_in_flush_mode() -> None:
    """Starts the threads in flush mode, because a thread inherits the mode of its creator."""
    dense, sparse = _tiny(), _tiny().to_sparse()
    torch.set_flush_denormal(Ranks.rank == 1)
    init()
    dist.all_reduce(dense, async_op=True).get_future().wait()
    dist.all_reduce(sparse)
    torch.set_flush_denormal(False)
    expected = _tiny(dist.get_world_size())
    same_bits(dense, expected, "all_reduce driven by the lane")
    same_bits(sparse.coalesce().values(), expected, "sum of sparse tensors")


def test_threads_of_ours_do_not_inherit_it(fresh_pool, flush_denormal):
    fresh_pool(2, init=False).run(_sums_after_a_start_in_flush_mode)


def _average(codec: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    group = _native.load().LocalRanks(len(tensors))
    for _ in range(2):
        group.all_reduce(tensors, [(ROWS * COLUMNS, ROWS, codec, False)], None, average=True)
    return tensors[0]


@pytest.mark.parametrize("codec", ["int8", "powersgd:2"])
def test_compressed_ones(codec: str, flush_denormal):
    """Compresses values where elements, products and sums are partly subnormal."""
    noise = torch.Generator().manual_seed(7)
    scale = torch.exp2(torch.randint(-148, -118, (ROWS * COLUMNS,), generator=noise).float())
    given = [torch.randn(ROWS * COLUMNS, generator=noise) * scale for _ in range(2)]
    expected = _average(codec, [tensor.clone() for tensor in given])
    copies = [tensor.clone() for tensor in given]
    flush_denormal(True)
    actual = _average(codec, copies)
    flush_denormal(False)
    assert expected.any()
    same_bits(actual, expected, codec)
