"""Codecs of the hook that adapt or keep state: "auto" and "powersgd:r"."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time

import pytest
import torch
import torch.distributed as dist
from support.compress import Given, Ledger, noise, refuses, seeds, step
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist


def _train(
    codec: str, steps: int, hidden: int = 256, error_feedback: bool | None = None
) -> tuple[float, dict, str]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    model = DistributedDataParallel(module, bucket_cap_mb=0.05)
    handle = torch_ringdist.ddp.compress(model, codec, error_feedback=error_feedback)
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


@pytest.mark.parametrize("error_feedback", [None, True, False])
def test_auto_chooses_alike_and_says_why(pools, error_feedback: bool | None):
    results = pools(2).run(_train, "auto", 12, 256, error_feedback)
    assert results[0][2] == results[1][2]
    for _, stats, _ in results:
        assert stats["codec"] == "auto"
        assert set(stats["chosen"]) <= {"none", "bf16", "int8", "int4", "powersgd:4"}
        assert len(stats["chosen"]) > 0
        assert "communication outlasts the backward pass" in stats["reason"]
    assert results[0][1]["chosen"] == results[1][1]["chosen"]
    assert results[0][1]["reason"] == results[1][1]["reason"]


def test_auto_waits_until_it_has_seen_some_steps(pools):
    for _, stats, _ in pools(2).run(_train, "auto", 4):
        assert stats["reason"] == ""
        assert stats["chosen"] == []
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


def _vectors(rules: dict, schedule: dict | None, seed: int) -> tuple[float, dict[str, float]]:
    """Trains with PowerSGD, which leaves vectors uncompressed. Returns the error of the sums and
    the residuals by parameter."""
    shapes = {"row": (5000,), "big": (70, 90), "column": (3000, 1), "other": (40, 64)}
    model = DistributedDataParallel(Given(shapes), bucket_cap_mb=25)
    handle = torch_ringdist.ddp.compress(model, "powersgd:2", rules=rules, schedule=schedule)
    ledger = Ledger()
    for each in seeds(seed, 6):
        given = noise(model.module, each)
        got = step(model, given)
        ledger.add(given, got)
    for name in ("row", "column"):
        dist.all_reduce(given[name])
        torch.testing.assert_close(got[name], given[name] / dist.get_world_size())
    owed = handle.state_dict()["residuals"]
    return ledger.error(owed), {name: t.norm().item() for name, t in (owed or {}).items()}


@pytest.mark.parametrize("rules", [{}, {"other": "none"}, {"other": "int4"}])
@pytest.mark.parametrize("schedule", [None, {0: "int4", 3: "powersgd:2"}])
def test_powersgd_has_no_residual_of_vectors(pools, rules: dict, schedule: dict | None):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    results = pools(2).run(_vectors, rules, schedule, seed)
    for error, owed in results:
        assert error < 1e-6
        assert owed.get("row", 0) == owed.get("column", 0) == 0
    assert results[0][1]["big"] > 0  # rank 0 gathers the states


def _alone() -> bool:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64, bias=False))
    torch_ringdist.ddp.compress(model, "powersgd:2")
    x = torch.randn(128, 64)
    model(x).square().sum().backward()
    plain = nn.Linear(64, 64, bias=False)
    plain.load_state_dict(model.module.state_dict())
    plain(x).square().sum().backward()
    return torch.equal(model.module.weight.grad, plain.weight.grad)


def test_a_group_of_one_loses_nothing(pools):
    assert pools(1).run(_alone) == [True]


def _disagree() -> float:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
    torch_ringdist.ddp.compress(model, "powersgd:2" if dist.get_rank() == 0 else "int4")
    began = time.monotonic()
    with contextlib.suppress(RuntimeError):
        model(torch.randn(8, 64)).sum().backward()
        raise AssertionError("ranks with different codecs did not notice")
    return time.monotonic() - began


def test_ranks_with_different_codecs_are_told(fresh_pool):
    assert max(fresh_pool(2).run(_disagree)) < 30


def _other_group() -> None:
    alone = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    model = DistributedDataParallel(nn.Linear(64, 64), process_group=alone)
    state = torch_ringdist.CompressState("int4", model=model)
    model.register_comm_hook(state, torch_ringdist.compress_hook)
    x = torch.full((1, 64), float(dist.get_rank()))
    model(x).sum().backward()
    assert model.module.weight.grad.max().item() == dist.get_rank()  # averaged with no other rank
    refuses(
        lambda: torch_ringdist.CompressState("int4", model=model, process_group=dist.group.WORLD),
        ValueError,
        ["process_group is another group"],
    )


def test_the_state_takes_the_group_of_the_model(pools):
    pools(2).run(_other_group)


def _comes_back() -> list[tuple[list[str], str]]:
    model = DistributedDataParallel(nn.Linear(64, 64))
    handle = torch_ringdist.ddp.compress(model, "auto", schedule={6: "int4", 9: "auto"})
    out = []
    for _ in range(11):
        model(torch.randn(8, 64)).sum().backward()
        stats = handle.stats()
        out.append((stats["chosen"], stats["reason"]))
    return out


def test_auto_goes_on_where_it_was(pools):
    for out in pools(2).run(_comes_back):
        assert out[5][1]
        assert out[8] == ([], "")  # int4
        assert out[9] == out[5]


def _late(seed: int) -> float:
    """Returns the error of a matrix's average, after gradients of zeros and of a lower rank."""
    torch.manual_seed(seed)
    model = DistributedDataParallel(Given({"big": (70, 90)}))
    handle = torch_ringdist.ddp.compress(model, "powersgd:2")
    rank = dist.get_rank()
    u, v = torch.randn(70, 2), torch.randn(90, 2)
    for ranks in (0, 0, 1, 1, 2, 2, 2, 2):
        given = {"big": (1 + rank) * u[:, :ranks] @ v[:, :ranks].T}
        got = step(model, given)["big"]
    expected = given["big"] / (1 + rank) * 1.5
    assert handle.residual_norm() < 1e-3 * expected.norm()
    return ((got - expected).norm() / expected.norm()).item()


def test_powersgd_learns_what_comes_late(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(2).run(_late, seed)) < 1e-3
