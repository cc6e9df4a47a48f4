"""State of compression between steps: checkpoints, loss scale, guard, statistics."""

from __future__ import annotations

import copy
import random

import numpy
import pytest
import torch
import torch.distributed as dist
from support.compress import Given, Ledger, noise, refuses, step, wrap
from support.rank import caught, new_group, same_bits
from torch import nn

import torch_ringdist


def _save(steps: int, seed: int) -> dict | None:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4")
    for i in range(steps):
        step(model, noise(model.module, seed + 100 * i + dist.get_rank()))
    state = handle.state_dict()
    assert state["steps"] == steps and state["world_size"] == dist.get_world_size()
    if dist.get_rank() != 0:
        assert state["residuals"] is None
        refuses(lambda: handle.load_state_dict(state), ValueError, ["what rank 0 saved"])
        return None
    for name, p in model.module.named_parameters():
        assert name == "tiny" or state["residuals"][name].shape == p.shape
    state["residuals"] = {name: t.numpy() for name, t in state["residuals"].items()}
    return state


def _resume(state: dict[str, object], warmup: int) -> dict[str, numpy.ndarray] | None:
    state = dict(state)
    state["residuals"] = {name: torch.tensor(a) for name, a in state["residuals"].items()}
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4", warmup_steps=warmup)
    handle.load_state_dict(state)
    again = handle.state_dict()
    assert again["steps"] == state["steps"]
    out = None
    if again["residuals"] is not None:
        out = {name: t.numpy() for name, t in again["residuals"].items()}
    # The mean residual reaches the parameters with an uncompressed step.
    got = step(model, noise(model.module, 7))
    for name, given in noise(model.module, 7).items():
        owed = state["residuals"].get(name, torch.zeros(())) / state["world_size"]
        torch.testing.assert_close(got[name], given + owed, rtol=1e-5, atol=1e-6)
    return out


@pytest.mark.parametrize(("old", "new"), [(4, 3), (2, 4), (3, 1)])
@pytest.mark.check
def test_reload_on_another_world_size_keeps_the_mean_residual(pools, old: int, new: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    state = pools(old).run(_save, 5, seed)[0]
    assert set(state["residuals"]) == {"big", "row", "last"}
    now = pools(new).run(_resume, state, 100)[0]
    for name, total in state["residuals"].items():
        assert numpy.abs(total).max() > 0
        numpy.testing.assert_allclose(now[name] / new, total / old, rtol=1e-5, atol=1e-7)


def _bad_states() -> None:
    handle = torch_ringdist.ddp.compress(wrap(Given()), "int4")
    good = {"version": 1, "steps": 3, "scale": 1.0, "world_size": 2, "residuals": {}}
    handle.load_state_dict(good)
    for change, words in (
        ({"version": 2}, ["version", "1", "2"]),
        ({"residuals": {"other": torch.zeros(3)}}, ["no parameter 'other'"]),
        ({"residuals": {"big": torch.zeros(3)}}, ["'big'", "[3]", "[70, 90]"]),
        ({"residuals": {"big": torch.zeros(90, 70)}}, ["'big'", "[90, 70]", "[70, 90]"]),
        ({"residuals": {"big": torch.full((70, 90), torch.nan)}}, ["'big'", "float32"]),
        ({"steps": -5}, ["state['steps']", "-5"]),
        ({"scale": 0.0}, ["state['scale']", "above 0", "0.0"]),
        ({"scale": 1e-45}, ["state['scale']", "too far apart"]),
        ({"world_size": 0}, ["state['world_size']", "1 or more"]),
    ):
        refuses(lambda c=change: handle.load_state_dict({**good, **c}), ValueError, words)
    refuses(lambda: handle.load_state_dict({"version": 1}), ValueError, ["has no 'steps'"])
    refuses(lambda: handle.load_state_dict(None), TypeError, ["state", "NoneType"])
    lists = {**good, "residuals": {"big": [1.0]}}
    refuses(lambda: handle.load_state_dict(lists), TypeError, ["'big'", "tensor", "list"])
    text = {**good, "scale": "1"}
    refuses(lambda: handle.load_state_dict(text), TypeError, ["state['scale']", "str"])
    assert handle.residual_norm() == 0


def _wrong_size() -> None:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4")
    state = handle.state_dict()
    state["residuals"] = {"big": torch.ones(3)}
    refuses(lambda: handle.load_state_dict(state), ValueError, ["'big'", "[3]", "[70, 90]"])
    step(model, noise(model.module, 1))  # has no effect
    assert handle.residual_norm() > 0


def test_a_residual_of_a_wrong_size_changes_nothing(pools):
    pools(2).run(_wrong_size)


def test_states_that_do_not_fit(pools):
    pools(2).run(_bad_states)


class Scaler:
    """Fake GradScaler with a scale that the test sets."""

    scale = 1.0

    def get_scale(self) -> float:
        return self.scale


def _scaled(seed: int) -> float:
    model, scaler = wrap(Given()), Scaler()
    handle = torch_ringdist.ddp.compress(model, "int4", scaler=scaler)
    books = Ledger()
    for i in range(40):
        scaler.scale = 2.0 ** (16 - i // 7 % 3)
        given = noise(model.module, seed + 100 * i + dist.get_rank())
        got = step(model, given, scaler.scale)
        books.add(given, {name: t / scaler.scale for name, t in got.items()})
    state = handle.state_dict()
    assert state["scale"] == scaler.scale
    residuals = state["residuals"]
    if residuals is not None:
        residuals = {name: t / scaler.scale for name, t in residuals.items()}
    return books.error(residuals)


def _norms_with(scaler: Scaler | None, scale: float) -> tuple[float, float]:
    """Returns the residual norm of a scaled loss, as reported and as logged."""
    model = wrap(Given())
    if scaler is not None:
        scaler.scale = scale
    handle = torch_ringdist.ddp.compress(model, "int4", scaler=scaler)
    for i in range(2):
        step(model, noise(model.module, 10 * i + dist.get_rank()), scale)
    torch_ringdist.ddp.log_to(writer := Writer(), handle)
    assert handle.stats()["residual_norm"] == handle.residual_norm()
    return handle.residual_norm(), writer.seen["ringdist/residual_norm"][0]


def _told_norms() -> None:
    plain = _norms_with(None, 1.0)
    assert plain[0] > 0 and _norms_with(Scaler(), 4096.0) == plain
    assert (
        _norms_with(None, 4096.0)[0] == 4096 * plain[0]
    )  # without the scaler, the scale of the loss remains


def test_the_residual_norm_excludes_the_loss_scale(pools):
    pools(2).run(_told_norms)


def _only_one_calls() -> str:
    group = new_group()
    model = wrap(Given(), process_group=group)
    handle = torch_ringdist.ddp.compress(model, "int4")
    step(model, noise(model.module, dist.get_rank()))
    if dist.get_rank() == 0:
        error = caught(handle.state_dict)
    else:
        error = caught(dist.broadcast, torch.ones(100), group=group, group_src=1)
        if error is None:  # sent before the other rank's error arrived
            error = caught(dist.barrier, group)
    dist.barrier()
    dist.destroy_process_group(group)
    return str(error)


def test_a_state_dict_that_not_all_ranks_call_is_named(pools):
    first, second = pools(2).run(_only_one_calls)
    for text in (first, second):
        assert "DistBackendError" in text, text
        assert "CompressState.state_dict(), which all ranks must call" in text, text
    assert "state_dict(local=True)" in first


def _shown() -> None:
    state = torch_ringdist.CompressState("topk:0.01", model=Given(), rules={"tiny": "none"})
    text = "CompressState('topk:0.01', rules={'tiny': 'none'})"
    assert repr(state) == text
    assert repr(copy.deepcopy(state)) == f"{text}, a copy"  # a copy has neither group nor model
    assert repr(torch_ringdist.CompressState(warmup_steps=3)) == (
        "CompressState('int4', warmup_steps=3)"
    )


def test_a_state_shows_how_it_was_made(pools):
    pools(2).run(_shown)


def test_residuals_follow_the_loss_scale(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(3).run(_scaled, seed)) < 1e-6


def _overflow() -> None:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4", guard=10)
    step(model, noise(model.module, dist.get_rank()))
    before = handle.residual_norm()
    given = noise(model.module, 50 + dist.get_rank())
    if dist.get_rank() == 0:
        given["row"][17] = float("inf")
    got = step(model, given)
    assert not torch.isfinite(got["row"]).all(), "an overflow must be seen by the scaler"
    assert torch.isfinite(got["big"]).all()
    after = handle.residual_norm()
    assert after == after and after < 100 * before, "a non-finite value entered a residual"


def test_overflow_reaches_every_rank_and_no_residual(pools):
    pools(2).run(_overflow)


def _guarded(spike_at: int | None) -> list[float]:
    models = [wrap(Given()) for _ in range(2)]
    handles = [
        torch_ringdist.ddp.compress(m, "int4", guard=g)
        for m, g in zip(models, (None, 10), strict=True)
    ]
    norms = []
    for i in range(16):
        given = noise(models[0].module, 100 * i + dist.get_rank())
        if i == spike_at and dist.get_rank() == 0:
            given = {name: g * 1000 for name, g in given.items()}
        plain, guarded = (step(m, given) for m in models)
        norms.append(float(guarded["big"].norm()))
        if spike_at is None:
            for name in plain:
                same_bits(guarded[name], plain[name], f"{name} in step {i}")
    if spike_at is None:
        assert handles[0].residual_norm() == handles[1].residual_norm()
    return norms


def test_guard_without_a_spike_changes_no_bit(pools):
    pools(2).run(_guarded, None)


def test_guard_caps_a_spike(pools):
    for norms in pools(2).run(_guarded, 12):
        usual = sum(norms[:12]) / 12
        assert 3 * usual < norms[12] < 15 * usual  # it would be 1000 times without the guard
        assert norms[15] < 2 * usual


def test_guard_lets_the_first_steps_be(pools):
    for norms in pools(2).run(_guarded, 5):
        assert norms[5] > 100 * norms[4]


class Writer:
    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, int]] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.seen[tag] = scalar_value, global_step


def _statistics() -> None:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4", measure_every=2)
    assert handle.stats()["step"] == -1 and handle.stats()["last"]["relative_error"] is None
    torch_ringdist.ddp.log_to(writer := Writer(), handle)
    assert writer.seen == {}
    for i in range(3):
        step(model, noise(model.module, 100 * i + dist.get_rank()))
    stats = handle.stats()
    count = sum(p.numel() for p in model.parameters())
    size = dist.get_world_size()
    whole = 2 * 4 * count * (size - 1) / size
    last, total = stats["last"], stats["total"]
    assert stats["step"] == stats["measured_step"] == 2 and stats["codec"] == "int4"
    assert abs(last["bytes_uncompressed"] - whole) <= 1
    assert 0.6 * whole < last["bytes_saved"] < whole
    assert abs(total["bytes_saved"] - 3 * last["bytes_saved"]) <= 3
    # int4 has an error of about a tenth on normal values, on each rank and on the owner.
    assert 0.02 < last["relative_error"] < 0.5
    assert 0.02 < total["relative_error"] < 0.5
    assert stats["residual_norm"] == handle.residual_norm() > 0
    torch_ringdist.ddp.log_to(writer, handle, 77)
    assert writer.seen["ringdist/bytes_saved"] == (last["bytes_saved"], 77)
    assert writer.seen["ringdist/relative_error"] == (last["relative_error"], 77)
    assert set(writer.seen) == {
        "ringdist/bytes_saved",
        "ringdist/share_of_bytes_saved",
        "ringdist/residual_norm",
        "ringdist/relative_error",
    }
    step(model, noise(model.module, dist.get_rank()))  # not measured
    torch_ringdist.ddp.log_to(writer := Writer(), handle)
    assert writer.seen["ringdist/bytes_saved"][1] == 3
    assert "ringdist/relative_error" not in writer.seen


def test_statistics(pools):
    pools(2).run(_statistics)


def _without_feedback() -> None:
    module = nn.Linear(100, 100)
    model = wrap(module)
    handle = torch_ringdist.ddp.compress(model, "int4", error_feedback=False, measure_every=1)
    model(torch.randn(3, 100)).sum().backward()
    stats = handle.stats()
    assert stats["last"]["bytes_saved"] > 0
    assert stats["residual_norm"] == 0 and stats["last"]["relative_error"] is None
    assert handle.state_dict()["residuals"] in ({}, None)


def test_without_error_feedback_nothing_is_kept(pools):
    pools(2).run(_without_feedback)
