"""The codecs of the hook that are more than codecs: "auto" and "powersgd:r"."""

from __future__ import annotations

import hashlib

import pytest
import torch
import torch.distributed as dist
from support.compress import refuses
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist


def _train(codec: str, steps: int, hidden: int = 256) -> tuple[float, dict, str]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    model = DistributedDataParallel(module, bucket_cap_mb=0.05)
    handle = torch_ringdist.ddp.compress(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    labels = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    random = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(64, 64, generator=random)
        loss = nn.functional.cross_entropy(model(x), (x @ labels).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return loss.item(), handle.stats(), hashlib.sha256(bits).hexdigest()


def test_auto_chooses_alike_and_says_why(pools):
    results = pools(2).run(_train, "auto", 12)
    assert results[0][2] == results[1][2]
    for _, stats, _ in results:
        assert stats["codec"] == "auto"
        assert "communication outlasts the backward pass" in stats["reason"]
    assert results[0][1]["reason"] == results[1][1]["reason"]


def test_auto_waits_until_it_has_seen_some_steps(pools):
    for _, stats, _ in pools(2).run(_train, "auto", 6):
        assert stats["reason"] == ""
        assert stats["total"]["bytes_saved"] == 0


@pytest.mark.parametrize("size", [2, 3])
def test_powersgd_learns_with_few_bytes(pools, size: int):
    plain = pools(size).run(_train, "none", 80)
    low_rank = pools(size).run(_train, "powersgd:4", 80)
    assert len({bits for _, _, bits in low_rank}) == 1
    for (loss, _, _), (compressed, stats, _) in zip(plain, low_rank, strict=True):
        assert compressed < loss + 0.35
        assert stats["last"]["bytes_saved"] > 0.7 * stats["last"]["bytes_uncompressed"]


def _refuses_ranks() -> None:
    for codec in ("powersgd:0", "powersgd:65", "powersgd:x", "powersgd:4:4"):
        model = DistributedDataParallel(nn.Linear(64, 64))
        refuses(
            lambda m=model, c=codec: torch_ringdist.ddp.compress(m, c),
            ValueError,
            [codec, "1 .. 64"],
        )


def test_powersgd_refuses_a_bad_rank(pools):
    pools(2).run(_refuses_ranks)
