"""Codec of each parameter: rules on names, defaults, warm-up steps, schedules."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
from support.compress import Given, Ledger, noise, refuses, seeds, step, wrap
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.embed_norm = nn.LayerNorm(2048)
        self.up = nn.Linear(64, 2048)
        self.down = nn.Linear(2048, 10, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.down(self.embed_norm(self.up(self.embed(tokens))))


def _compressed_parameters(settings: dict) -> set[str]:
    """Returns the names of parameters with an average that differs from an uncompressed model's."""
    results = []
    for compressed in (False, True):
        torch.manual_seed(0)
        model = DistributedDataParallel(Words())
        if compressed:
            handle = torch_ringdist.ddp.compress(model, **settings)
        torch.manual_seed(dist.get_rank())
        model(torch.randint(0, 100, (8,))).square().sum().backward()
        results.append({name: p.grad for name, p in model.module.named_parameters()})
    plain, ours = results
    differ = set()
    for name, expected in plain.items():
        error = float((ours[name] - expected).norm() / expected.norm())
        if error > 1e-6:
            differ.add(f"{name} {'8' if error < 0.03 else '4'}")
    assert handle.stats()["last"]["bytes_saved"] >= 0
    return differ


RULES = {
    "defaults": ({}, {"embed.weight 8", "up.weight 4", "up.bias 4", "down.weight 4"}),
    "gentle codec": (
        {"codec": "int8"},
        {"embed.weight 8", "up.weight 8", "up.bias 8", "down.weight 8"},
    ),
    "nothing": ({"codec": "none"}, {"embed.weight 8"}),
    "rules": (
        {"rules": {"embed.*": "int4", "up.w*": "none", "up.*": "int8", "*norm*": "int4"}},
        {
            "embed.weight 4",
            "embed_norm.weight 4",
            "embed_norm.bias 4",
            "up.bias 8",
            "down.weight 4",
        },
    ),
    "all plain": ({"rules": {"*": "none"}}, set()),
}


@pytest.mark.parametrize("case", RULES)
def test_rules(pools, case: str):
    settings, expected = RULES[case]
    if case == "nothing":
        expected = set()  # none has more bits than int8
    for differ in pools(2).run(_compressed_parameters, settings):
        assert differ == expected


def _rule_without_match() -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch_ringdist.ddp.compress(wrap(Given()), rules={"embd*": "int8", "big": "int8"})
    return [str(w.message) for w in seen]


def test_rule_that_matches_nothing_is_told(pools):
    for seen in pools(2).run(_rule_without_match):
        assert [text for text in seen if "'embd*' matches no parameter" in text]
        assert not [text for text in seen if "'big'" in text]


def _phases(schedule, seed: int) -> list[tuple[str, bool, float]]:
    """Returns per step the codec, True if the average was exact, and the residual norm."""
    model = wrap(Given())
    asked: list[int] = []
    given_schedule = schedule
    if schedule == "function":

        def given_schedule(step: int) -> str:
            asked.append(step)
            return "none" if step < 3 else "int4"

    handle = torch_ringdist.ddp.compress(model, "int4", warmup_steps=2, schedule=given_schedule)
    books, out = Ledger(), []
    for s in seeds(seed, 6):
        given = noise(model.module, s)
        got = step(model, given)
        books.add(given, got)
        exact = True
        for name, tensor in given.items():
            dist.all_reduce(mean := tensor.clone(), dist.ReduceOp.AVG)
            exact &= torch.allclose(mean, got[name], rtol=1e-6, atol=1e-7)
        out.append((handle.stats()["codec"], exact, handle.residual_norm()))
    assert books.error(handle.state_dict()["residuals"]) < 1e-6
    assert asked == (list(range(6)) if schedule == "function" else [])
    return out


def test_warm_up_then_the_codec(pools):
    for out in pools(2).run(_phases, None, 3):
        assert [codec for codec, _, _ in out] == ["none"] * 2 + ["int4"] * 4
        assert [exact for _, exact, _ in out] == [True] * 2 + [False] * 4
        assert [norm > 0 for _, _, norm in out] == [False] * 2 + [True] * 4


def test_schedule_by_step(pools):
    for out in pools(2).run(_phases, {3: "none", 4: "int4", 5: "none"}, 4):
        assert [codec for codec, _, _ in out] == ["none", "none", "int4", "none", "int4", "none"]
        # The residual of int4 is added to the next uncompressed gradient.
        assert [norm > 0 for _, _, norm in out] == [False, False, True, False, True, False]


def test_schedule_by_function_is_asked_once_per_step(pools):
    for out in pools(2).run(_phases, "function", 5):
        assert [codec for codec, _, _ in out] == ["none"] * 3 + ["int4"] * 3


def _layout() -> None:
    options = torch_ringdist.Options(deterministic="layout")
    group = dist.new_group(pg_options=options)
    model = DistributedDataParallel(Given(), process_group=group)
    state = torch_ringdist.CompressState
    words = ["deterministic='layout'", "no codec is excepted", "none and powersgd:R"]
    for given, name in (
        ({"codec": "int4"}, "codec='int4'"),
        ({"codec": "lossless"}, "codec='lossless'"),  # it has no scales
        ({"codec": "auto"}, "codec='auto'"),
        ({"codec": "none", "schedule": {3: "fp16"}}, "schedule[3]='fp16'"),
        ({"codec": "powersgd:2", "rules": {"last": "int8"}}, "rules: 'last'='int8'"),
    ):
        refuses(lambda g=given: state(model=model, **g), ValueError, [name, *words])
    one = torch.ones(2048)
    refuses(
        lambda: torch_ringdist.all_reduce(one, group=group, codec="lossless"),
        ValueError,
        ["deterministic='layout'", "no codec is excepted"],
    )
    model.register_comm_hook(state("powersgd:2", model=model), torch_ringdist.compress_hook)
    step(model, noise(model.module, 1))
    dist.destroy_process_group(group)


@pytest.mark.default_of("RINGDIST_ALGORITHM", reason="layout takes rank-ordered ones only")
def test_a_group_whose_bits_depend_on_no_place_takes_no_blocks(pools):
    pools(2).run(_layout)
