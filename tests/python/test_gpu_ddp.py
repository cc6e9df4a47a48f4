"""DistributedDataParallel and FSDP2 on GPUs."""

from __future__ import annotations

import hashlib

import pytest
import torch
import torch.distributed as dist
from support.gpu import my_device, needs_gpu
from support.rank import new_group
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist.fsdp

pytestmark = needs_gpu
STEPS, BATCH, INPUTS, CLASSES = 80, 128, 64, 10


def _network(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(INPUTS, 300), torch.nn.ReLU(), torch.nn.Linear(300, CLASSES)]
    return torch.nn.Sequential(*layers).to(device)


def _train(model: torch.nn.Module, device: torch.device, steps: int = STEPS) -> list[float]:
    """Returns the losses. The class of an input is the index of its largest value among the
    first."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    noise = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        inputs = torch.randn(BATCH, INPUTS, generator=noise)
        target = inputs[:, :CLASSES].argmax(1).to(device)
        loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _digest(model: torch.nn.Module) -> str:
    out = hashlib.sha256()
    for parameter in model.parameters():
        out.update(parameter.detach().cpu().numpy().tobytes())
    return out.hexdigest()


def _ddp(codec: str | None) -> tuple[list[float], str]:
    """Returns the losses, and a digest of the parameters."""
    device = my_device()
    model = DistributedDataParallel(_network(device), device_ids=[device])
    feedback = codec != "fp16"
    state = torch_ringdist.ddp.compress(model, codec, error_feedback=feedback) if codec else None
    losses = _train(model, device)
    if state and feedback:
        stats = state.stats()
        assert stats["step"] == STEPS - 1 and 0 < stats["last"]["relative_error"] < 2, stats
        assert stats["residual_norm"] > 0, stats
    return losses, _digest(model)


@pytest.mark.parametrize("codec", [None, "fp16", "int8", "int4", "onebit", "topk:100"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_ddp(pools, size: int, codec: str | None):
    if size == 1 and codec:
        pytest.skip("alone nothing is compressed")
    results = pools(size).run(_ddp, codec, timeout=90)
    assert len({parameters for _, parameters in results}) == 1, "ranks differ"
    for losses, _ in results:
        assert losses[-1] < 0.6 * losses[0], losses


def _gradients(place: str, codec: str) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Returns averages of two steps with gradients that are exact on every device, and the
    residuals."""
    device = my_device() if place == "cuda" else torch.device(place)
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 64, bias=False).to(device)
    ids, group = [device] if place == "cuda" else None, new_group()
    ddp = DistributedDataParallel(model, device_ids=ids, process_group=group)
    state = torch_ringdist.ddp.compress(ddp, codec, error_feedback=True, guard=2.0, measure_every=1)
    noise = torch.Generator().manual_seed(dist.get_rank())
    averages = []
    for _ in range(2):
        ddp.zero_grad()
        one = torch.zeros(1, 64)
        one[0, int(torch.randint(64, (1,), generator=noise))] = 2
        factors = torch.randn(64, generator=noise).to(device)
        (ddp(one.to(device)) * factors).sum().backward()
        averages.append(model.weight.grad.cpu().clone())
    return averages, state.state_dict(local=True)["residuals"]


def _as_on_the_cpu(codec: str) -> None:
    (here, owed_here), (there, owed_there) = (_gradients(p, codec) for p in ("cpu", "cuda"))
    for step, (a, b) in enumerate(zip(here, there, strict=True)):
        assert torch.equal(a, b), f"average of step {step}"
    assert owed_here.keys() == owed_there.keys() and owed_here
    for name, values in owed_here.items():
        assert torch.equal(values, owed_there[name]), f"what {name} owes"


@pytest.mark.parametrize("codec", ["int8", "int4", "onebit", "topk:100"])
def test_compressed_gradients_are_those_of_the_cpu(pools, codec: str):
    pools(2).run(_as_on_the_cpu, codec)


def _state_returns() -> None:
    device = my_device()
    models = [DistributedDataParallel(_network(device), device_ids=[device]) for _ in range(2)]
    states = [torch_ringdist.ddp.compress(model, "int4") for model in models]
    _train(models[0], device, steps=5)
    states[1].load_state_dict(states[0].state_dict(local=True))
    owed = [state.state_dict(local=True)["residuals"] for state in states]
    for name, values in owed[0].items():
        assert torch.equal(values, owed[1][name]), name
    _train(models[1], device, steps=2)


def test_the_residual_is_saved_and_loaded(pools):
    pools(2).run(_state_returns)


def _fsdp(codec: str | None) -> list[float]:
    device = my_device()
    model = _network(device)
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    if codec:
        torch_ringdist.fsdp.compress(model, codec)
    return _train(model, device)


@pytest.mark.parametrize("codec", [None, "int8", "bf16"])
def test_fsdp(pools, codec: str | None):
    for losses in pools(2).run(_fsdp, codec, timeout=90):
        assert losses[-1] < 0.6 * losses[0], losses
