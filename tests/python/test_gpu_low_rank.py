"""PowerSGD and "auto" on GPUs: models learn, ranks agree, nothing is lost, no step blocks."""

from __future__ import annotations

import hashlib
import random

import numpy
import pytest
import torch
import torch.distributed as dist
from support.compress import SHAPES, Given, Ledger, noise, seeds, step, wrap
from support.gpu import my_device, needs_gpu
from support.rank import caught, new_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

pytestmark = needs_gpu
CANDIDATES = {"none", "bf16", "int8", "int4", "powersgd:4"}


def _train(codec: str, steps: int, half: bool = False) -> tuple[float, dict, str]:
    """Returns the last loss, the statistics, and a digest of the parameters."""
    device = my_device()
    torch.manual_seed(0)
    layers = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)]
    module = nn.Sequential(*layers).to(device)
    model = DistributedDataParallel(module, device_ids=[device], bucket_cap_mb=0.3)
    handle = torch_ringdist.ddp.compress(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    labels = torch.randn(64, 10, generator=torch.Generator().manual_seed(1)).to(device)
    draws = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(64, 64, generator=draws).to(device)
        with torch.autocast("cuda", enabled=half):
            loss = nn.functional.cross_entropy(model(x), (x @ labels).argmax(1))
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    bits = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    return loss.item(), handle.stats(), hashlib.sha256(bits).hexdigest()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_powersgd_learns_with_few_bytes(pools, size: int, half: bool):
    plain = pools(size).run(_train, "none", 120, half, timeout=120)
    low_rank = pools(size).run(_train, "powersgd:4", 120, half, timeout=120)
    assert len({bits for _, _, bits in low_rank}) == 1, "ranks differ"
    for (loss, _, _), (compressed, stats, _) in zip(plain, low_rank, strict=True):
        assert compressed < loss + 0.35
        assert stats["last"]["bytes_saved"] > 0.7 * stats["last"]["bytes_uncompressed"]
        assert stats["residual_norm"] > 0


@pytest.mark.parametrize("size", [1, 2, 4])
def test_auto_chooses_alike_and_says_why(pools, size: int):
    results = pools(size).run(_train, "auto", 20, timeout=120)
    assert len({bits for _, _, bits in results}) == 1, "ranks differ"
    chosen, reason = results[0][1]["chosen"], results[0][1]["reason"]
    assert set(chosen) <= CANDIDATES and (chosen or size == 1)
    if size > 1:
        assert "communication outlasts the backward pass" in reason, reason
        print(chosen, reason)
    for _, stats, _ in results:
        assert (stats["chosen"], stats["reason"]) == (chosen, reason)


def _given(place: str, dtype: torch.dtype, codec: str, each: list[int], tf32: bool = False):
    """Returns averages of some steps, the residuals of all ranks, and the error of the sums."""
    device = my_device() if place == "cuda" else torch.device(place)
    torch.backends.cuda.matmul.allow_tf32 = tf32
    # Vectors are not compressed, so rounding their average in halves leaves no residual.
    shapes = SHAPES if dtype == torch.float32 else {"big": (70, 90), "last": (40, 64)}
    model = wrap(Given(shapes, dtype).to(device), process_group=new_group())
    handle = torch_ringdist.ddp.compress(model, codec)
    ledger, averages = Ledger(), []
    for seed in each:
        given = noise(model.module, seed, dtype)
        got = step(model, {name: g.to(device) for name, g in given.items()})
        averages.append({name: g.cpu() for name, g in got.items()})
        ledger.add(given, averages[-1])
    torch.backends.cuda.matmul.allow_tf32 = False
    owed = handle.state_dict()["residuals"]
    return averages, owed, ledger.error(owed)


def _nothing_is_lost(dtype: torch.dtype, tf32: bool, seed: int) -> float:
    _, owed, error = _given("cuda", dtype, "powersgd:2", list(seeds(seed, 6)), tf32)
    if dist.get_rank() == 0:
        assert owed is not None and owed["big"].norm() > 0
    return error


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [2, 3])
def test_results_and_residuals_sum_to_the_inputs(pools, size, dtype, tf32):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(size).run(_nothing_is_lost, dtype, tf32, seed)) < 2e-6


def _as_the_cpu(seed: int) -> None:
    each = list(seeds(seed, 3))
    (here, owed_here, _), (there, owed_there, _) = (
        _given(place, torch.float32, "powersgd:2", each) for place in ("cpu", "cuda")
    )
    for number, (a, b) in enumerate(zip(here, there, strict=True)):
        for name in a:
            torch.testing.assert_close(b[name], a[name], rtol=1e-3, atol=1e-3, msg=str(number))
    for name, values in (owed_here or {}).items():
        torch.testing.assert_close(owed_there[name], values, rtol=1e-3, atol=1e-3)


def test_averages_are_those_of_the_cpu_but_for_rounding(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(2).run(_as_the_cpu, seed)


def _late(seed: int) -> float:
    """Returns the error of a matrix's average, after gradients of zeros and of a lower rank."""
    device = my_device()
    torch.manual_seed(seed)
    model = DistributedDataParallel(Given({"big": (70, 90)}).to(device))
    handle = torch_ringdist.ddp.compress(model, "powersgd:2")
    rank = dist.get_rank()
    u, v = torch.randn(70, 2), torch.randn(90, 2)
    for ranks in (0, 0, 1, 1, 2, 2, 2, 2):
        given = {"big": ((1 + rank) * u[:, :ranks] @ v[:, :ranks].T).to(device)}
        got = step(model, given)["big"]
    expected = given["big"] / (1 + rank) * 1.5
    assert handle.residual_norm() < 1e-3 * expected.norm().item()
    return ((got - expected).norm() / expected.norm()).item()


def test_powersgd_learns_what_comes_late(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(2).run(_late, seed)) < 1e-3


def _not_a_number() -> None:
    device = my_device()
    model = wrap(Given().to(device))
    handle = torch_ringdist.ddp.compress(model, "powersgd:2")
    given = {name: g.to(device) for name, g in noise(model.module, dist.get_rank()).items()}
    step(model, given)
    before = handle.state_dict(local=True)["residuals"]["big"]
    if dist.get_rank() == 1:
        given["big"][3, 5] = float("inf")
    got = step(model, given)
    assert got["big"].isnan().all() and got["last"].isfinite().all()
    assert torch.equal(handle.state_dict(local=True)["residuals"]["big"], before)


def test_a_nan_reaches_all_and_not_the_residual(pools):
    pools(2).run(_not_a_number)


def _moved(there: str, seed: int) -> None:
    """Moves residuals of a GPU to `there`, where an uncompressed step adds them."""
    device = my_device()
    first = wrap(Given().to(device))
    saved = torch_ringdist.ddp.compress(first, "powersgd:2")
    for each in seeds(seed, 3):
        step(first, {name: g.to(device) for name, g in noise(first.module, each).items()})
    states = [saved.state_dict()]
    dist.broadcast_object_list(states, 0)
    place = device if there == "cuda" else torch.device(there)
    second = wrap(Given().to(place), process_group=new_group())
    loaded = torch_ringdist.ddp.compress(second, "powersgd:2", warmup_steps=4)
    loaded.load_state_dict(states[0])
    again = loaded.state_dict()
    assert again["steps"] == 3
    for name, values in (again["residuals"] or {}).items():
        torch.testing.assert_close(values, states[0]["residuals"][name])
    given = {name: g.to(place) for name, g in noise(second.module, seed).items()}
    got = step(second, given)
    for name, gradient in given.items():
        owed = states[0]["residuals"].get(name, torch.zeros(())).to(place) / dist.get_world_size()
        torch.testing.assert_close(got[name], gradient + owed, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("there", ["cpu", "cuda"])
def test_the_residual_is_saved_and_loaded(pools, there: str):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(2).run(_moved, there, seed)


def _steps(codec: str, count: int, side: int, watched: bool = False) -> tuple[int, int, int]:
    """Returns bytes of the device after a few steps and after all, and the maximum in the last
    ones."""
    device = my_device()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    model = nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in range(4))).to(device)
    model = DistributedDataParallel(model, device_ids=[device], gradient_as_bucket_view=True)
    handle = torch_ringdist.ddp.compress(model, codec, measure_every=0)
    x = torch.ones(4, side, device=device)
    early = 0
    for number in range(count):
        model.zero_grad()
        loss = model(x).square().sum()
        if number == 6:
            torch.cuda.synchronize()
            early = torch.cuda.memory_allocated() - before
            torch.cuda.reset_peak_memory_stats()
        if watched and number >= 6:
            torch.cuda.set_sync_debug_mode("error")
        try:
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert handle.stats()["step"] == count - 1
    late = torch.cuda.memory_allocated() - before
    return early, late, torch.cuda.max_memory_allocated() - before


def test_powersgd_needs_little_memory(pools):
    side = 1024
    model = 4 * side * side * 4
    for early, late, most in pools(2).run(_steps, "powersgd:4", 20, side):
        print(early / model, late / model, most / model)
        assert late <= 1.05 * early, "it grows"
        # Parameters, gradients, old and new residuals are four times the model. The rest are
        # factors, cuBLAS workspaces (32 MiB a stream), and flags of the matrices of a bucket.
        assert most < 5.5 * model + 2**27


def test_no_step_waits_for_the_device(pools):
    pools(2).run(_steps, "powersgd:4", 12, 256, True)


def _alone() -> float:
    """Returns the error of a rank when the other one does not come. The group ends, the state
    stays."""
    device = my_device()
    model = wrap(Given().to(device))
    handle = torch_ringdist.ddp.compress(model, "powersgd:2")
    given = {name: g.to(device) for name, g in noise(model.module, 1).items()}
    step(model, given)
    before = handle.state_dict(local=True)
    if dist.get_rank() == 1:
        dist.distributed_c10d._get_default_group().abort()
        return 0.0

    def until_told() -> None:
        for _ in range(100):
            step(model, given)
            torch.cuda.synchronize()

    assert caught(until_told)
    after = handle.state_dict(local=True)
    assert after["steps"] == before["steps"]
    return numpy.abs((after["residuals"]["big"] - before["residuals"]["big"]).numpy()).max()


def test_a_step_that_fails_keeps_the_residual(fresh_pool):
    assert max(fresh_pool(2).run(_alone)) == 0
