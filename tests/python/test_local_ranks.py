"""LocalRanks, the group inside one process that studies use."""

from __future__ import annotations

import pytest
import torch

from torch_ringdist import _native

RANKS, ROWS, COLUMNS = 3, 40, 30
SEED = 5


def draw(count: int, steps: int) -> list[list[torch.Tensor]]:
    random = torch.Generator().manual_seed(SEED)
    return [[torch.randn(count, generator=random) for _ in range(RANKS)] for _ in range(steps)]


@pytest.mark.parametrize("codec", ["int4", "onebit", "topk:0.01", "powersgd:2"])
def test_results_and_residuals_sum_to_the_inputs(codec: str) -> None:
    group = _native.load().LocalRanks(RANKS)
    matrix, rest = ROWS * COLUMNS, 50
    parts = [(matrix, ROWS, codec, True), (rest, 1, "none", False)]
    owed = [torch.zeros(matrix + rest) for _ in range(RANKS)]
    given, applied = torch.zeros(matrix + rest), torch.zeros(matrix + rest)
    for gradients in draw(matrix + rest, steps=20):
        given += torch.stack(gradients).sum(0)
        group.all_reduce(gradients, parts, owed, average=True)
        assert all(torch.equal(gradients[0], other) for other in gradients)
        applied += gradients[0] * RANKS
    lost = given - applied
    assert lost[:matrix].norm() > 0.01 * given[:matrix].norm(), f"seed {SEED}: nothing was lost"
    off = (lost - torch.stack(owed).sum(0)).norm() / given.norm()
    assert off < 1e-6, f"seed {SEED}"


def test_powersgd_keeps_the_residuals_of_neighbours() -> None:
    group = _native.load().LocalRanks(RANKS)
    count = 100 + ROWS * COLUMNS + 300 + 256
    parts = [
        (100, 100, "powersgd:2", True),  # a vector, which is not compressed
        (ROWS * COLUMNS, ROWS, "powersgd:2", True),
        (300, 300, "powersgd:2", True),
        (256, 1, "int4", True),
    ]
    owed = [torch.zeros(count) for _ in range(RANKS)]
    for gradients in draw(count, steps=5):
        before = torch.stack(owed).sum(0)
        given = torch.stack(gradients).sum(0)
        group.all_reduce(gradients, parts, owed, average=True)
        got = gradients[0] * RANKS + torch.stack(owed).sum(0)
        torch.testing.assert_close(got, given + before, rtol=1e-4, atol=1e-4)
    vectors = torch.cat([owed[0][:100], owed[0][100 + ROWS * COLUMNS :][:300]])
    assert not vectors.any()
    assert owed[0][100 : 100 + ROWS * COLUMNS].any()


def test_powersgd_finds_a_matrix_of_its_rank() -> None:
    group = _native.load().LocalRanks(RANKS)
    random = torch.Generator().manual_seed(SEED)
    left, right = torch.randn(ROWS, 2, generator=random), torch.randn(2, COLUMNS, generator=random)
    mean = (left @ right).flatten()
    for _ in range(3):  # the approximation begins where the last one ended
        gradients = [mean * 0.5, mean * 1.0, mean * 1.5]
        parts = [(mean.numel(), ROWS, "powersgd:2", False)]
        group.all_reduce(gradients, parts, None, average=True)
    torch.testing.assert_close(gradients[0], mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("parts", "average", "message"),
    [
        ([(10, 1, "int5", False)], True, "parts"),
        ([(10, 3, "powersgd:1", False)], True, "10 elements in 3 rows"),
        ([(9, 1, "int4", False)], True, "cover 9 elements of 10"),
        ([(10, 1, "int4", True)], True, "needs residuals"),
        ([(10, 1, "powersgd:99", False)], True, "1 .. 64"),
    ],
)
def test_refuses(parts: list, average: bool, message: str) -> None:
    group = _native.load().LocalRanks(2)
    with pytest.raises(ValueError, match=message):
        group.all_reduce([torch.ones(10), torch.ones(10)], parts, None, average=average)


def test_powersgd_does_not_sum() -> None:
    group = _native.load().LocalRanks(2)
    parts = [(400, 20, "powersgd:1", False)]
    with pytest.raises(ValueError, match="averages"):
        group.all_reduce([torch.ones(400), torch.ones(400)], parts, None, average=False)


def test_traits_know_powersgd() -> None:
    assert _native.load().codec_traits("powersgd", 4) == ("powersgd:4", 0.0, True)
    assert _native.load().codec_traits("int4", 4)[2]
