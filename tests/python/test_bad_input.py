"""Invalid arguments of operations. Only the rank that passed them gets an error, and at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, caught, new_group, same_bits
from torch.distributed.distributed_c10d import AllgatherOptions

import torch_ringdist

REDUCIBLE = "float64, float32, bfloat16, float16, int64, int32, int16, int8, uint8"


def ours():
    """Returns the backend behind the default group. PyTorch's own checks reject some calls
    earlier."""
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def ints() -> torch.Tensor:
    return torch.ones(4, dtype=torch.int32)


def packed() -> torch.Tensor:
    return torch._empty_affine_quantized([4], scale=1.0, zero_point=0, dtype=torch.quint4x2)


def gather(outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor]):
    return ours().allgather(outputs, inputs, AllgatherOptions())


def broadcast(tensors: list[torch.Tensor], root_tensor: int = 0):
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, root_tensor
    return ours().broadcast(tensors, options)


def reduce_all(*tensors: torch.Tensor):
    return ours().allreduce(list(tensors), dist.AllreduceOptions())


# Each makes a call with a float32 tensor of 4 elements, in a group of 2 ranks.
Call = Callable[[torch.Tensor], object]
BAD: dict[str, tuple[Call, type[Exception], list[str]]] = {
    "no tensor": (
        lambda t: reduce_all(),
        ValueError,
        ["all_reduce: tensor", "exactly one", "none given"],
    ),
    "two tensors": (
        lambda t: reduce_all(t, t),
        ValueError,
        ["all_reduce: tensor", "single-element", "2 tensors given"],
    ),
    "no tensor to broadcast": (
        lambda t: broadcast([]),
        ValueError,
        ["broadcast: tensor", "exactly one", "none given"],
    ),
    "two tensors to gather": (
        lambda t: gather([[t, t]], [t, t]),
        ValueError,
        ["all_gather: input", "single-element", "2 tensors given"],
    ),
    "not a tensor": (lambda t: dist.all_reduce(None), TypeError, ["`tensor`", "NoneType"]),
    "average of bools": (
        lambda t: dist.all_reduce(t.bool(), dist.ReduceOp.AVG),
        TypeError,
        ["all_reduce: tensor", "bool", "AVG", REDUCIBLE],
    ),
    "complex maximum": (
        lambda t: dist.all_reduce(t.to(torch.complex64), dist.ReduceOp.MAX),
        ValueError,
        ["all_reduce", "MAX", "complex"],
    ),
    "packed dtype": (
        lambda t: broadcast([packed()]),
        TypeError,
        ["broadcast: tensor", "QUInt4x2", "supported: "],
    ),
    "dtype to scatter": (
        lambda t: dist.reduce_scatter_tensor(t[:2].bool(), t.bool(), dist.ReduceOp.AVG),
        TypeError,
        ["reduce_scatter_tensor: input", "bool", REDUCIBLE],
    ),
    "bits of floats": (
        lambda t: dist.all_reduce(t, dist.ReduceOp.BAND),
        TypeError,
        ["all_reduce: tensor", "float32[4]", "BAND", "supported: int64"],
    ),
    "bits of floats to reduce": (
        lambda t: dist.reduce(t, 0, dist.ReduceOp.BXOR),
        TypeError,
        ["reduce: tensor", "float32[4]", "BXOR"],
    ),
    "half a factor of integers": (
        lambda t: dist.all_reduce(ints(), dist._make_nccl_premul_sum(0.5)),
        TypeError,
        ["all_reduce", "PREMUL_SUM", "int32[4]", "0.5", "whole factors"],
    ),
    "factor of another dtype": (
        lambda t: dist.all_reduce(t, dist._make_nccl_premul_sum(torch.ones(1).double())),
        TypeError,
        ["all_reduce", "PREMUL_SUM", "float64[1]", "float32[4]"],
    ),
    "sparse": (
        lambda t: dist.all_reduce(t.to_sparse(), dist.ReduceOp.MAX),
        ValueError,
        ["unsupported reduction operation MAX"],
    ),
    "sparse to gather": (
        lambda t: gather([[t.clone(), t.clone()]], [t.to_sparse()]),
        ValueError,
        ["all_gather: input", "Sparse", "dense"],
    ),
    "another device": (
        lambda t: reduce_all(t.to("meta")),
        TypeError,
        ["all_reduce: tensor", "meta", "cpu"],
    ),
    "another device to gather into": (
        lambda t: gather([[t.clone(), t.to("meta")]], [t]),
        TypeError,
        ["all_gather: output[1]", "meta", "cpu"],
    ),
    "expanded": (
        lambda t: dist.all_reduce(torch.ones(1).expand(4)),
        ValueError,
        ["all_reduce: tensor", "overlaps itself", "clone()"],
    ),
    "list too short": (
        lambda t: dist.all_gather([t.clone()], t),
        ValueError,
        ["all_gather", "output", "2 expected", "1 given"],
    ),
    "list too long": (
        lambda t: dist.all_gather([t.clone() for _ in range(3)], t),
        ValueError,
        ["all_gather", "output", "2 expected", "3 given"],
    ),
    "list empty": (
        lambda t: dist.all_gather([], t),
        ValueError,
        ["all_gather", "output", "2 expected", "0 given"],
    ),
    "several lists": (
        lambda t: gather([[t.clone(), t.clone()]] * 2, [t]),
        ValueError,
        ["all_gather", "output", "one list", "2 lists given"],
    ),
    "output of a list too small": (
        lambda t: dist.all_gather([torch.ones(4), torch.ones(3)], t),
        ValueError,
        ["all_gather", "output[1]", "float32[3]", "float32[4]"],
    ),
    "output of a list of another dtype": (
        lambda t: gather([[t.clone(), t.double()]], [t]),
        TypeError,
        ["all_gather: output[1]", "float64[4]", "float32[4]"],
    ),
    "output too small": (
        lambda t: dist.all_gather_into_tensor(torch.ones(7), t),
        ValueError,
        ["all_gather_into_tensor", "output", "float32[7]", "8 elements"],
    ),
    "output of another dtype": (
        lambda t: dist.all_gather_into_tensor(torch.ones(8).double(), t),
        TypeError,
        ["all_gather_into_tensor: output", "float64[8]", "float32[4]"],
    ),
    "input to scatter too small": (
        lambda t: dist.reduce_scatter_tensor(torch.ones(3), t),
        ValueError,
        ["reduce_scatter_tensor", "input", "float32[4]", "6 elements"],
    ),
    "output to scatter of another dtype": (
        lambda t: dist.reduce_scatter_tensor(torch.ones(2).double(), t),
        TypeError,
        ["reduce_scatter_tensor: output", "float64[2]", "float32[4]"],
    ),
    "root below": (
        lambda t: dist.broadcast(t, group_src=-1),
        ValueError,
        ["broadcast", "root rank", "-1", "[0, 2)"],
    ),
    "root above": (
        lambda t: dist.broadcast(t, group_src=2),
        ValueError,
        ["broadcast", "root rank", ": 2", "[0, 2)"],
    ),
    "root tensor": (
        lambda t: broadcast([t], 1),
        ValueError,
        ["broadcast", "root tensor", ": 1", "must be 0"],
    ),
}


def provoke(call: Callable[[torch.Tensor], object]) -> Raised | None:
    """Makes a call on the last rank only. Returns its error; the group must work afterwards."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.arange(4.0) + rank
    before = ours()._get_sequence_number_for_group()
    error = None
    if rank == size - 1:
        error = caught(call, tensor)
        same_bits(tensor, torch.arange(4.0) + rank, "the tensor after the refused call")
        assert ours()._get_sequence_number_for_group() == before, "the refused call was counted"
    dist.all_reduce(tensor)
    same_bits(tensor, torch.arange(4.0) * size + size * (size - 1) / 2, "the call after it")
    assert ours()._get_sequence_number_for_group() == before + 1
    return error


def _bad(case: str) -> Raised | None:
    return provoke(BAD[case][0])


@pytest.mark.parametrize("case", BAD)
@pytest.mark.check
def test_bad_input(pools, case: str):
    _, kind, words = BAD[case]
    error = pools(2).run(_bad, case)[-1]
    assert error is not None, "nothing was raised"
    assert kind.__name__ in error.kinds, error
    if error.text.startswith("ringdist:"):  # not rejected by PyTorch's own checks
        ours = "ArgumentError" if kind is ValueError else "NotSupportedError"
        assert error.kinds[0] == ours and "RuntimeError" in error.kinds, error
    missing = [word for word in words if word not in error.text]
    assert not missing, f"{missing} not in: {error}"
    assert error.after < 30, error


def _pickled() -> list[Exception]:
    errors = []
    for call in (lambda: broadcast([]), lambda: reduce_all(torch.ones(4, device="meta"))):
        with pytest.raises((ValueError, TypeError)) as raised:
            call()
        errors.append(raised.value)
    return errors


def test_errors_of_arguments_survive_pickling(pools):
    [argument, unserved] = pools(2).run(_pickled)[0]
    assert type(argument) is torch_ringdist.ArgumentError
    assert str(argument).startswith("ringdist: broadcast: tensor requires non-empty"), argument
    assert type(unserved) is torch_ringdist.NotSupportedError
    assert isinstance(argument, RuntimeError) and isinstance(unserved, RuntimeError)
    assert repr(argument).startswith("ArgumentError('ringdist: broadcast"), repr(argument)


def _group_of_a_pigeon(field: str) -> Raised:
    return caught(new_group, pg_options=torch_ringdist.Options(**{field: "pigeon"}))


@pytest.mark.parametrize(
    ("field", "accepted"), [("transport", "shm, ucx"), ("algorithm", "ring, direct")]
)
def test_an_unknown_name_is_refused_when_the_group_is_made(fresh_pool, field: str, accepted: str):
    for error in fresh_pool(2).run(_group_of_a_pigeon, field):
        assert "ValueError" in error.kinds, error
        assert f'option {field}="pigeon" is not valid; accepted: "", {accepted}' in error.text
