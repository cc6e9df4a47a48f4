"""torch_ringdist.ddp.compress and compress_hook: gradients of DistributedDataParallel."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.compress import SHAPES, Given, Ledger, noise, refuses, seeds, step, wrap
from support.rank import same_bits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def _conserves(codec: str, dtype: str, seed: int) -> float:
    shapes = dict(SHAPES)
    if dtype == "bfloat16":
        del shapes["tiny"]  # not compressed, so its rounding is no residual
        if codec.startswith("powersgd"):
            del shapes["row"]  # vectors are not compressed either
    model = wrap(Given(shapes, DTYPES[dtype]))
    handle = torch_ringdist.ddp.compress(model, codec, error_feedback=True)
    books = Ledger()
    for s in seeds(seed, 100):
        given = noise(model.module, s, DTYPES[dtype])
        books.add(given, step(model, given))
    assert model._get_ddp_logging_data()["has_rebuilt_buckets"]
    assert handle.residual_norm() > 0
    return books.error(handle.state_dict()["residuals"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", ["int4", "int8>int4", "powersgd:2"])
@pytest.mark.parametrize("size", [3, 4])
def test_nothing_is_lost_through_a_rebuild_of_buckets(pools, size: int, codec: str, dtype: str):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(size).run(_conserves, codec, dtype, seed)) < 1e-6


def _unused_and_frozen(seed: int) -> float:
    module = Given()
    module.register_parameter("frozen", nn.Parameter(torch.zeros(2000), requires_grad=False))
    model = wrap(module, find_unused_parameters=True)
    handle = torch_ringdist.ddp.compress(model, "int4")
    books = Ledger()
    for i, s in enumerate(seeds(seed, 60)):
        given = noise(module, s)
        if i % 3 == 1 and dist.get_rank() == 0:
            del given["row"]  # on this rank only
        if i % 3 == 2:
            del given["row"], given["big"]  # on all ranks
        books.add(given, step(model, given))
    state = handle.state_dict()
    if state["residuals"] is not None:
        assert set(state["residuals"]) == {"big", "row", "last"}
    return books.error(state["residuals"])


def test_unused_and_frozen_parameters(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(3).run(_unused_and_frozen, seed)) < 1e-6


def _no_sync(seed: int) -> float:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4")
    books = Ledger()
    for s in seeds(seed, 30):
        first, second = noise(model.module, s), noise(model.module, s + 5000)
        model.zero_grad()
        with model.no_sync():
            model(first).backward()
        model(second).backward()
        given = {name: first[name] + second[name] for name in first}
        books.add(given, {n: p.grad for n, p in model.module.named_parameters()})
    assert handle.stats()["step"] == 29
    return books.error(handle.state_dict()["residuals"])


@pytest.mark.check
def test_no_sync_counts_and_conserves_per_synchronised_step(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(2).run(_no_sync, seed)) < 1e-6


def _join(seed: int) -> float:
    model = wrap(Given())
    handle = torch_ringdist.ddp.compress(model, "int4")
    books = Ledger()
    nothing = {name: torch.zeros_like(p) for name, p in model.module.named_parameters()}
    steps = 6 + 4 * dist.get_rank()
    with model.join():
        for s in seeds(seed, steps):
            given = noise(model.module, s)
            books.add(given, step(model, given))
    handle_steps = handle.stats()["step"] + 1
    assert handle_steps == 6 + 4 * (dist.get_world_size() - 1)
    # A joined rank does not see the results of later steps, so use the last rank's.
    for name in nothing:
        got = books.got[name]
        dist.broadcast(got, dist.get_world_size() - 1)
    return books.error(handle.state_dict()["residuals"])


def test_join_with_uneven_inputs(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    assert max(pools(3).run(_join, seed)) < 1e-6


def _forms(seed: int) -> None:
    """Checks that the hook in C++ and the one in Python do the same."""
    models = [wrap(Given()) for _ in range(2)]
    handle = torch_ringdist.ddp.compress(models[0], "int4", rules={"row": "int8"}, warmup_steps=1)
    state = torch_ringdist.CompressState(
        "int4", model=models[1], rules={"row": "int8"}, warmup_steps=1
    )
    models[1].register_comm_hook(state, torch_ringdist.compress_hook)
    for s in seeds(seed, 4):
        given = noise(models[0].module, s)
        first, second = (step(model, given) for model in models)
        for name in first:
            same_bits(second[name], first[name], name)
    assert handle.residual_norm() == state.residual_norm() > 0
    one, other = handle.stats(), state.stats()
    assert one["total"]["bytes_saved"] == other["total"]["bytes_saved"] > 0


def test_both_forms_of_the_hook_agree(pools):
    pools(2).run(_forms, 11)


def _nameless(seed: int) -> None:
    model = wrap(Given())
    state = torch_ringdist.CompressState("int4")
    model.register_comm_hook(state, torch_ringdist.compress_hook)
    books = Ledger()
    for s in seeds(seed, 3):
        given = noise(model.module, s)
        got = step(model, given)
        books.add(given, got)
    saved = state.state_dict()
    if dist.get_rank() == 0:
        assert len(saved["residuals"]) == 3
        assert all(name.startswith("parameter.") for name in saved["residuals"])
    # State that is loaded before the first step waits for its parameters.
    other = torch_ringdist.CompressState("int4")
    everyones = [saved]
    dist.broadcast_object_list(everyones, 0)
    other.load_state_dict(everyones[0])
    again = wrap(Given())
    again.register_comm_hook(other, torch_ringdist.compress_hook)
    given = noise(model.module, seed + dist.get_rank())
    books.add(given, step(again, given))
    owed = other.state_dict()["residuals"]
    if owed is not None:  # the shapes identify the parameters
        by_count = {residual.numel(): residual for residual in owed.values()}
        shapes = {name: p.shape for name, p in again.module.named_parameters() if name != "tiny"}
        owed = {name: by_count[s.numel()].reshape(s) for name, s in shapes.items()}
    assert books.error(owed) < 1e-6


def test_hook_that_was_not_told_the_model(pools):
    pools(2).run(_nameless, 13)


def _unsupported_gradients() -> None:
    double = wrap(Given(dtype=torch.float64))
    torch_ringdist.ddp.compress(double, "int4")
    given = noise(double.module, dist.get_rank(), torch.float64)
    got = step(double, given)
    for name, tensor in given.items():
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        torch.testing.assert_close(got[name], tensor, rtol=1e-14, atol=0)

    sparse = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 50, sparse=True)))
    torch_ringdist.ddp.compress(sparse, "int4")
    refuses(
        lambda: sparse(torch.tensor([1, 2])).sum().backward(),
        TypeError,
        ["'0.weight' has a sparse gradient"],
    )


def test_doubles_go_uncompressed_and_sparse_gradients_are_refused(pools):
    pools(2).run(_unsupported_gradients)


BAD = {
    "not DDP": (lambda m: compress(m.module), TypeError, ["model", "DistributedDataParallel"]),
    "unknown codec": (lambda m: compress(m, "int5"), ValueError, ["codec='int5'", "have: none"]),
    "no codec": (lambda m: compress(m, ""), ValueError, ["codec", "'none'", "''"]),
    "powersgd in a pair": (
        lambda m: compress(m, "powersgd:4>int8"),
        ValueError,
        ["'powersgd:4>int8'", "powersgd:RANK alone"],
    ),
    "auto as a rule": (
        lambda m: compress(m, rules={"*": "auto"}),
        ValueError,
        ["rules['*']='auto'", "as codec or in a schedule"],
    ),
    "pattern no text": (lambda m: compress(m, rules={1: "int8"}), TypeError, ["rules", "1", "int"]),
    "warm-up without end": (
        lambda m: compress(m, warmup_steps=2**70),
        ValueError,
        ["warmup_steps", "2**63"],
    ),
    "codec no text": (lambda m: compress(m, 4), TypeError, ["codec", "'int4'", "int"]),
    "unknown codec of a rule": (
        lambda m: compress(m, rules={"big": "int5"}),
        ValueError,
        ["rules['big']='int5'", "unknown codec"],
    ),
    "rules no dict": (lambda m: compress(m, rules=["a"]), TypeError, ["rules", "dict", "list"]),
    "unknown codec of the schedule": (
        lambda m: compress(m, schedule={5: "int5"}),
        ValueError,
        ["schedule[5]='int5'", "unknown codec"],
    ),
    "schedule no dict": (lambda m: compress(m, schedule=5), TypeError, ["schedule", "function"]),
    "schedule before the start": (
        lambda m: compress(m, schedule={-1: "int8"}),
        ValueError,
        ["a step of schedule", "-1"],
    ),
    "warm-up below zero": (
        lambda m: compress(m, warmup_steps=-1),
        ValueError,
        ["warmup_steps", "-1"],
    ),
    "warm-up no number": (
        lambda m: compress(m, warmup_steps=True),
        TypeError,
        ["warmup_steps", "bool"],
    ),
    "guard too low": (lambda m: compress(m, guard=1), ValueError, ["guard", "above 1", "1"]),
    "guard no number": (lambda m: compress(m, guard="10"), TypeError, ["guard", "str"]),
    "feedback no bool": (
        lambda m: compress(m, error_feedback=1),
        TypeError,
        ["error_feedback", "True, False or None", "int"],
    ),
    "feedback of a codec that may not": (
        lambda m: compress(m, "bf16:stochastic", error_feedback=True),
        ValueError,
        ["error_feedback=True", "'bf16:stochastic'", "int4"],
    ),
    "scaler": (lambda m: compress(m, scaler=2.0), TypeError, ["scaler", "GradScaler", "float"]),
    "a second hook": (
        lambda m: (compress(m, "int8", guard=10), compress(m)),
        RuntimeError,
        ["CompressState('int8', guard=10)", "schedule=", "DistributedDataParallel(model.module)"],
    ),
    "another hook": (
        lambda m: (m.register_comm_hook(None, fp16_compress_hook), compress(m)),
        RuntimeError,
        ["fp16_compress_hook"],
    ),
    "rules without model": (
        lambda m: torch_ringdist.CompressState(rules={"a": "int8"}),
        ValueError,
        ["rules", "model="],
    ),
    "hook without state": (
        lambda m: torch_ringdist.compress_hook(None, None),
        TypeError,
        ["state", "CompressState", "NoneType"],
    ),
}


def compress(*args, **named):
    return torch_ringdist.ddp.compress(*args, **named)


def _refused(case: str) -> None:
    model = wrap(Given())
    refuses(lambda: BAD[case][0](model), BAD[case][1], BAD[case][2])


@pytest.mark.parametrize("case", BAD)
def test_bad_input(pools, case: str):
    pools(2).run(_refused, case)


def _other_backend() -> None:
    group = dist.new_group(backend="gloo")
    model = DistributedDataParallel(nn.Linear(4, 4), process_group=group)
    refuses(lambda: compress(model), ValueError, ["compress: group", "ringdist", "gloo"])
    dist.destroy_process_group(group)


def test_group_of_another_backend(pools):
    pools(2).run(_other_backend)
