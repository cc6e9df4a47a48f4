"""Training with compressed communication ends where uncompressed training ends."""

from __future__ import annotations

import hashlib

import pytest
import torch
import torch.distributed as dist
from support.rank import new_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

STEPS, BATCH = 200, 32


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]


def _network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Linear(64, 128), nn.ReLU()), *(nn.Linear(128, 128), nn.ReLU()), nn.Linear(128, 10)
    )


def _train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    images, labels = _digits()
    mine = torch.arange(dist.get_rank(), 1437, dist.get_world_size())
    random = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        batch = mine[torch.randint(len(mine), (BATCH,), generator=random)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()


def _accuracy(model: nn.Module) -> float:
    images, labels = _digits()
    with torch.no_grad():
        return float((model(images[1437:]).argmax(1) == labels[1437:]).float().mean())


def _train_ddp(codec: str | None) -> tuple[float, str]:
    model = DistributedDataParallel(_network(), bucket_cap_mb=0.05)
    if codec is not None:
        torch_ringdist.ddp.compress(model, codec)
    _train(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    digest = hashlib.sha256()
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
    return _accuracy(model.module), digest.hexdigest()


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_with_int4_is_as_good_as_without(pools, size: int):
    plain = pools(size).run(_train_ddp, None)
    first, second = pools(size).run(_train_ddp, "int4"), pools(size).run(_train_ddp, "int4")
    assert plain[0][0] > 0.9
    assert abs(first[0][0] - plain[0][0]) < 0.02, (first[0], plain[0])
    assert len({digest for _, digest in first + second}) == 1, "ranks or runs differ"
    assert first[0][1] != plain[0][1], "nothing was compressed"


def _train_fsdp(compressed: str) -> tuple[float, int]:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    group = new_group()
    mesh = DeviceMesh.from_group(group, "cpu")
    model = _network()
    for layer in [model[0], model[2], model[4], model]:
        fully_shard(layer, mesh=mesh)
        if compressed == "by hand":
            layer.set_custom_all_gather(torch_ringdist.fsdp.AllGather("int8"))
            layer.set_custom_reduce_scatter(torch_ringdist.fsdp.ReduceScatter("int8"))
        layer.set_gradient_divide_factor(3.0)  # not the world size, so FSDP uses PREMUL_SUM
    if compressed == "compress()":
        torch_ringdist.fsdp.compress(model, "int8")
    before = torch_ringdist.stats()["bytes_sent"]
    _train(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    sent = torch_ringdist.stats()["bytes_sent"] - before
    accuracy = _accuracy(model)
    dist.destroy_process_group(group)
    return accuracy, sent


def test_fsdp2_with_int8_is_as_good_as_without(pools):
    plain, *both = (pools(2).run(_train_fsdp, how)[0] for how in ("", "by hand", "compress()"))
    assert plain[0] > 0.9
    for ours in both:
        assert abs(ours[0] - plain[0]) < 0.02, (ours, plain)
        assert ours[1] < 0.5 * plain[1], (ours, plain)
