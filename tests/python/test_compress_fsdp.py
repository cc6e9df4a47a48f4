"""fsdp.compress(): codecs by parameter, and the codecs that parameters may have."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from support.compress import refuses
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import torch_ringdist

fsdp = torch_ringdist.fsdp


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(101, 48)
        self.norm = nn.LayerNorm((40, 48))  # large, but a norm
        self.up = nn.Linear(48, 130)
        self.frozen = nn.Linear(130, 64).requires_grad_(False)
        self.tiny = nn.Linear(64, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tiny(self.frozen(self.up(self.norm(self.embed(tokens))).relu()))


def _sharded(*wrapped: str) -> Block:
    torch.manual_seed(3)
    model, mesh = Block(), init_device_mesh("cpu", (dist.get_world_size(),))
    nn.init.normal_(model.norm.weight)
    for name in wrapped:
        fully_shard(model.get_submodule(name), mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _look(model: Block) -> dict[str, torch.Tensor]:
    """Returns the parameters as forward will see them, by name."""
    seen: dict[str, torch.Tensor] = {}

    def hook(name: str):
        def look(module: nn.Module, *_) -> None:
            for own, p in module.named_parameters(recurse=False):
                seen[f"{name}.{own}"] = p.detach().clone()

        return look

    for name, module in model.named_children():
        module.register_forward_pre_hook(hook(name))
    return seen


def _compressed(settings: dict, wrapped: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Returns the names of parameters that are gathered with a loss, and of those that are
    reduced so."""
    plain, gathers, reduces = models = [_sharded(*wrapped) for _ in range(3)]
    for model in (gathers, reduces):
        fsdp.compress(model, **settings)
    for module in plain.modules():
        if isinstance(module, FSDPModule):
            name = next(n for n, m in plain.named_modules() if m is module)
            gathers.get_submodule(name).set_custom_reduce_scatter(fsdp.ReduceScatter("none"))
            reduces.get_submodule(name).set_custom_all_gather(fsdp.AllGather("none"))
    seen = [_look(model) for model in models]
    for model in models:
        torch.manual_seed(dist.get_rank())
        model(torch.randint(0, 101, (4, 40))).square().sum().backward()
    off = set()
    for (name, ours), p in zip(reduces.named_parameters(), plain.parameters(), strict=True):
        if p.grad is not None:
            exact = p.grad.full_tensor()
            error = (ours.grad.full_tensor() - exact).norm() / exact.norm()
            assert error < 0.1, name
            off |= {name} if error > 1e-5 else set()
    for name, exact in seen[0].items():
        torch.testing.assert_close(seen[1][name], exact, rtol=0, atol=exact.abs().max() / 8)
    return {name for name in seen[0] if not torch.equal(seen[0][name], seen[1][name])}, off


CASES = {
    "defaults": ({}, {"embed.weight", "up.weight"}),
    "one by one": ({"codec": "fp8:e5m2", "rules": {"up.*": "none"}}, {"embed.weight"}),
    "none": ({"codec": "none", "rules": {"norm.weight": "int8"}}, {"norm.weight"}),
}


@pytest.mark.parametrize("wrapped", [(), ("embed", "up")], ids=["one group", "three groups"])
@pytest.mark.parametrize("case", CASES)
def test_compresses_by_parameter(pools, case: str, wrapped: tuple[str, ...]):
    settings, expected = CASES[case]
    frozen = {"frozen.weight"} if settings.get("codec") != "none" else set()
    for gathered, reduced in pools(2).run(_compressed, settings, wrapped):
        assert gathered == expected | frozen
        assert reduced == expected


def _refused() -> None:
    plain, model = Block(), _sharded()
    for codec in ("topk:0.1", "onebit", "int4", "int2", "randomk:10", "topk:0.1+h"):
        words = [repr(codec), "none, fp16, bf16, fp8, int8, lossless"]
        refuses(lambda c=codec: fsdp.AllGather(c), ValueError, words)
        refuses(lambda c=codec: fsdp.compress(model, c), ValueError, words)
        refuses(lambda c=codec: fsdp.compress(model, rules={"up.*": c}), ValueError, words)
        fsdp.ReduceScatter(codec)  # allowed for gradients
    for codec in ("none", "bf16:stochastic", "fp8:e5m2", "int8+h", "lossless"):
        fsdp.AllGather(codec)
    refuses(lambda: fsdp.compress(plain), ValueError, ["fully_shard()"])
    refuses(lambda: fsdp.compress(model, 8), TypeError, ["codec", "8"])
    refuses(lambda: fsdp.compress(7), TypeError, ["model", "7"])
    refuses(lambda: fsdp.compress(model, "int8>fp8"), ValueError, ["int8>fp8", "one codec"])


def test_parameters_need_codecs_that_keep_them(pools):
    pools(2).run(_refused)
