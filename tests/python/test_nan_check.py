"""RINGDIST_NAN_CHECK: the first NaN that would be sent is named on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.rank import a_new_group_works, caught, new_group, oracle
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist

NAN = float("nan")
FAULTY = 1  # the rank with the NaN


def _checked() -> dist.ProcessGroup:
    return new_group(pg_options=torch_ringdist.Options(nan_check=1))


def _all_reduce(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    dist.all_reduce(data, group=group)


def _all_gather(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    dist.all_gather_into_tensor(data.new_empty(3 * data.numel()), data, group=group)


def _list(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    dist.all_reduce_coalesced([torch.ones(4), data], group=group)


def _broadcast(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    dist.broadcast(data, FAULTY, group=group)


def _compressed(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    torch_ringdist.all_reduce(data, group=group, codec="int8")


def _send(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    if dist.get_rank() == FAULTY:
        dist.send(data, 0, group=group)
    else:
        dist.recv(data, FAULTY, group=group)


CALLS: dict[str, tuple[Callable[[dist.ProcessGroup, torch.Tensor], None], str]] = {
    "all_reduce": (_all_reduce, "element 7 of the input of all_reduce #2"),
    "all_gather": (_all_gather, "element 7 of the input of all_gather #2"),
    "a list": (_list, "element 11 of the input of all_reduce #2"),
    "broadcast": (_broadcast, "element 7 of the input of broadcast #2"),
    "compressed": (_compressed, "element 7 of the input of all_reduce #2"),
    "send": (_send, "element 7 of the input of send"),
}


def _call(name: str, dtype: torch.dtype) -> str:
    group = _checked()
    dist.barrier(group=group)
    data = torch.ones(4096, dtype=dtype)
    if dist.get_rank() == FAULTY:
        data[7] = NAN
        data[9] = NAN
    error = caught(CALLS[name][0], group, data)
    dist.barrier(group=oracle())
    dist.destroy_process_group(group)
    a_new_group_works()
    assert error is not None
    return error.text


@pytest.mark.parametrize("name", CALLS)
def test_each_rank_names_rank_operation_and_element(pools, name: str):
    for text in pools(3).run(_call, name, torch.float32):
        assert f"rank {FAULTY} of group" in text and f"{CALLS[name][1]} is NaN" in text, text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64], ids=str)
def test_other_dtypes(pools, dtype: torch.dtype):
    element = 14 if dtype.is_complex else 7  # a complex number is two elements of a sum
    for text in pools(2).run(_call, "all_reduce", dtype):
        assert f"element {element} of the input of all_reduce #2 is NaN" in text, text


def _in_the_first_operation() -> str:
    data = torch.full((3,), NAN if dist.get_rank() == FAULTY else 1.0)
    error = caught(dist.all_reduce, data, group=_checked())
    assert error is not None
    return error.text


def test_before_the_group_has_formed(pools):
    for text in pools(2).run(_in_the_first_operation):
        assert "element 0 of the input of all_reduce #1 is NaN" in text, text


def _what_is_not_read() -> list[Any]:
    group, rank = _checked(), dist.get_rank()
    received = torch.full((3,), NAN)
    if rank == 0:
        received.fill_(1.0)
    dist.broadcast(received, 0, group=group)
    gathered = torch.full((2 * dist.get_world_size(),), NAN)
    dist.all_gather_into_tensor(gathered, torch.full((2,), float("inf")), group=group)
    integers = torch.full((3,), -1)
    dist.all_reduce(integers, group=group)
    dist.destroy_process_group(group)
    off = new_group(pg_options=torch_ringdist.Options(nan_check=0))
    dist.all_reduce(result := torch.full((2,), NAN), group=off)
    dist.destroy_process_group(off)
    return [received.tolist(), gathered.isinf().all().item(), result.isnan().all().item()]


def test_what_is_not_read_is_not_checked(pools):
    for found in pools(2).run(_what_is_not_read):
        assert found == [[1.0, 1.0, 1.0], True, True]


def _backward(codec: str) -> str:
    group = _checked()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    ddp = DistributedDataParallel(model, process_group=group)
    torch_ringdist.ddp.compress(ddp, codec)
    ddp(torch.ones(4, 64)).sum().backward()
    if dist.get_rank() == FAULTY:

        def spoil(gradient: torch.Tensor) -> torch.Tensor:
            gradient = gradient.clone()
            gradient[3, 5] = NAN
            return gradient

        model[2].weight.register_hook(spoil)
    error = caught(lambda: ddp(torch.ones(4, 64)).sum().backward())
    dist.barrier(group=oracle())
    dist.destroy_process_group(group)
    assert error is not None
    return error.text


def _infinite_backward() -> None:
    group = _checked()
    ddp = DistributedDataParallel(torch.nn.Linear(64, 64), process_group=group)
    torch_ringdist.ddp.compress(ddp, "powersgd:2")
    for scale in (1.0, float("inf") if dist.get_rank() == FAULTY else 1.0):
        (ddp(torch.ones(4, 64)).sum() * scale).backward()
    dist.destroy_process_group(group)


def test_factors_of_an_infinite_gradient_are_not_checked(pools):
    """GradScaler expects infinities, from which PowerSGD makes NaN by itself."""
    pools(2).run(_infinite_backward)


def _after_a_failure() -> str:
    group = _checked()
    data = torch.full((3,), NAN if dist.get_rank() == FAULTY else 1.0)
    assert caught(dist.all_reduce, torch.ones(2 + dist.get_rank()), group=group)
    error = caught(dist.all_reduce, data, group=group)
    assert error is not None
    return error.text


def test_the_first_cause_is_kept(pools):
    for text in pools(2).run(_after_a_failure):
        assert "has failed and cannot be used" in text and "NaN" not in text, text


@pytest.mark.parametrize("codec", ["int4", "powersgd:2"])
def test_a_gradient_is_named_by_its_parameter(pools, codec: str):
    for text in pools(2).run(_backward, codec):
        assert f"element {3 * 64 + 5} of the gradient of '2.weight', for all_reduce #" in text, text
        assert f"rank {FAULTY} of group" in text
