"""A failed op or step leaves the residuals unchanged, and they can be saved and used elsewhere."""

from __future__ import annotations

import random
import time
from inspect import signature

import pytest
import torch
import torch.distributed as dist
from support.compress import Given, Ledger, noise, refuses, seeds, step, wrap
from support.rank import caught, new_group, same_bits
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist


def _lonely_call(call: str) -> None:
    """Makes rank 0 call, encode and wait alone, while the others leave."""
    group = new_group()
    dist.barrier(group)
    if dist.get_rank() != 0:
        dist.barrier()
        dist.destroy_process_group(group)
        return dist.barrier()
    given = torch.randn(4096 * group.size(), generator=torch.Generator().manual_seed(1))
    residual = torch.full_like(given, 0.25)
    settings = {"group": group, "codec": "topk:10", "residual": residual, "async_op": True}
    if call == "all_reduce":
        work = torch_ringdist.all_reduce(given, **settings)
    else:
        work = torch_ringdist.reduce_scatter_tensor(torch.empty(4096), given, **settings)
    time.sleep(0.2)  # time to encode
    dist.barrier()
    error = caught(work.wait)
    assert error is not None and "RuntimeError" in error.kinds, error
    same_bits(residual, torch.full_like(given, 0.25), "the residual of an op that failed")
    return dist.barrier()


@pytest.mark.parametrize("call", ["all_reduce", "reduce_scatter_tensor"])
def test_an_op_that_fails_leaves_its_residual(pools, call: str):
    pools(2).run(_lonely_call, call)


def _residuals(state: torch_ringdist.CompressState) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in state.state_dict(local=True)["residuals"].items()}


class Breaks(Exception):
    """Raised by the test on one rank in the middle of a backward pass."""


class Hook:
    """Wraps compress_hook(). When armed, it raises before the last of several buckets."""

    def __init__(self, state: torch_ringdist.CompressState) -> None:
        self.state, self.armed = state, False

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self.armed and bucket.is_last():
            assert bucket.index() > 0
            raise Breaks
        return torch_ringdist.compress_hook(self.state, bucket)


def run_hook(hook: Hook, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return hook(bucket)


run_hook.__annotations__.update(
    {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
)


def _model(codec: dict, group: dist.ProcessGroup):
    module = Given()
    hook = Hook(torch_ringdist.CompressState(model=module, process_group=group, **codec))
    return _wrapped(module, hook, group), hook


def _wrapped(module: Given, hook: Hook, group: dist.ProcessGroup):
    model = wrap(module, process_group=group)
    model.register_comm_hook(hook, run_hook)
    return model


def _breaks_and_goes_on(codec: dict, seed: int) -> float:
    """Runs steps, one that fails when its first buckets have been averaged, and steps in a new
    group.

    The failed step must have no effect, so the sums must balance without it.
    """
    group = new_group()
    model, hook = _model(codec, group)
    books, numbers = Ledger(), seeds(seed, 8)
    for i in numbers[:4]:
        given = noise(model.module, i)
        books.add(given, step(model, given))
    before, stats = _residuals(hook.state), hook.state.stats()
    assert hook.state.residual_norm() > 0
    breaks = hook.armed = dist.get_rank() == dist.get_world_size() - 1
    error = caught(step, model, noise(model.module, numbers[4]))
    if breaks:
        dist.destroy_process_group(group)
    assert error is not None, "the step must fail on every rank"
    after = hook.state.state_dict(local=True)
    assert after["steps"] == 4 and hook.state.stats() == stats
    assert set(after["residuals"]) == set(before)
    for name, owed in before.items():
        same_bits(after["residuals"][name], owed, f"{name} after the step that failed")
    if not breaks:
        refuses(hook.state.state_dict, RuntimeError, ["state_dict()", "local=True"])
    dist.barrier()

    model, hook = _model(codec, new_group())
    hook.state.load_state_dict(after)
    for i in numbers[4:]:
        given = noise(model.module, i)
        books.add(given, step(model, given))
    whole = hook.state.state_dict()
    assert whole["steps"] == 8
    return books.error(whole["residuals"])


CODECS = {
    "int4": {"codec": "int4"},
    "powersgd": {"codec": "powersgd:2"},
    "paid in the step that fails": {"schedule": {0: "onebit", 4: "none"}},
}


@pytest.mark.parametrize("case", CODECS)
def test_a_step_that_fails_changes_nothing(pools, case: str):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    # A residual is exact, up to the rounding of its sum with a gradient.
    assert max(pools(3).run(_breaks_and_goes_on, CODECS[case], seed)) < 1e-6


def _same_bits_as_without_the_failure(codec: str) -> None:
    """Compares with a model that did not fail. PowerSGD's warm starts are not in a checkpoint."""
    rank, group = dist.get_rank(), new_group()
    models, hooks = zip(*(_model({"codec": codec}, group) for _ in range(2)), strict=True)
    for i in range(3):
        given = noise(models[0].module, 100 * i + rank)
        for model in models:
            step(model, given)
    hooks[0].armed = True  # on all ranks, so that the group survives
    error = caught(step, models[0], noise(models[0].module, 77 + rank))
    assert error is not None and "Breaks" in error.kinds, error
    hooks[0].armed = False
    # After the failure DDP accepts no further batch, and a new DDP rebuilds its buckets.
    models = [_wrapped(m.module, h, group) for m, h in zip(models, hooks, strict=True)]
    for i in range(3):
        given = noise(models[0].module, 500 + 100 * i + rank)
        got, expected = (step(model, given) for model in models)
        for name, gradient in expected.items():
            same_bits(got[name], gradient, f"{name} after a pass that broke off")
    assert [h.state.stats()["step"] for h in hooks] == [5, 5]


@pytest.mark.parametrize("codec", ["int4", "powersgd:2"])
def test_a_backward_pass_that_breaks_off_is_no_step(pools, codec: str):
    pools(2).run(_same_bits_as_without_the_failure, codec)


def _left_out(seed: int) -> float:
    """Uses a DDP that does not reduce parameters that no rank uses, so the last bucket does not
    arrive."""
    model = wrap(Given(), find_unused_parameters=True, skip_all_reduce_unused_params=True)
    handle = torch_ringdist.ddp.compress(model, "int4", rules={"tiny": "none"})
    books = Ledger()
    used = [
        ("big", "row", "tiny", "last"),
        ("last",),
        ("big",),
    ]  # parameters in all buckets but the first
    for i, number in enumerate(seeds(seed, 6)):
        given = noise(model.module, number)
        given = {name: given[name] for name in used[i % 3]}
        books.add(given, step(model, given))
    state = handle.state_dict()
    assert state["steps"] == 6
    return books.error(state["residuals"])


@pytest.mark.skipif(
    "skip_all_reduce_unused_params" not in signature(DistributedDataParallel).parameters,
    reason="this torch does not leave out buckets",
)
def test_a_step_without_its_last_bucket_counts(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(2).run(_left_out, seed)) < 1e-6


def _local_states() -> None:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4")
    for i in range(3):
        step(model, noise(model.module, 100 * i + dist.get_rank()))
    local = handle.state_dict(local=True)
    total = {name: t.clone() for name, t in local["residuals"].items()}
    for t in total.values():
        dist.all_reduce(t)
    state = handle.state_dict()
    if dist.get_rank() == 0:
        for name, t in state["residuals"].items():
            torch.testing.assert_close(t, total[name])
    other = torch_ringdist.ddp.compress(wrap(Given()), "int4")
    other.load_state_dict(local)
    for name, t in other.state_dict(local=True)["residuals"].items():
        same_bits(t, local["residuals"][name], name)
        assert t.shape == getattr(model.module, name).shape


def test_a_local_state_is_that_of_its_rank(pools):
    pools(2).run(_local_states)
