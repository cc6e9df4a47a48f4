"""Invalid arguments of rooted operations, lists, splits, sends and receives."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised
from test_bad_input import Call, ours, provoke
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllToAllOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

Lists = list[list[torch.Tensor]]


def rooted(options, root: int):
    options.rootRank = root
    return options


def reduce(root: int, root_tensor: int = 0) -> Call:
    options = rooted(ReduceOptions(), root)
    options.rootTensor = root_tensor
    return lambda t: ours().reduce([t], options)


# The last rank of 2 makes the calls. It is the root where the root is 1.
def gather(outputs: Lists, inputs: list[torch.Tensor], root: int = 1):
    return ours().gather(outputs, inputs, rooted(GatherOptions(), root))


def scatter(outputs: list[torch.Tensor], inputs: Lists, root: int = 1):
    return ours().scatter(outputs, inputs, rooted(ScatterOptions(), root))


def reduce_scatter(outputs: list[torch.Tensor], inputs: Lists):
    return ours().reduce_scatter(outputs, inputs, ReduceScatterOptions())


def split(t: torch.Tensor, outputs: list[int], inputs: list[int]):
    return ours().alltoall_base(t.clone(), t, outputs, inputs, AllToAllOptions())


def exchange(outputs: list[torch.Tensor], inputs: list[torch.Tensor]):
    return ours().alltoall(outputs, inputs, AllToAllOptions())


BAD: dict[str, tuple[Call, type[Exception], list[str]]] = {
    "reduce to below": (reduce(-1), ValueError, ["reduce", "invalid root rank: -1", "[0, 2)"]),
    "reduce to above": (reduce(2), ValueError, ["reduce", "invalid root rank: 2", "[0, 2)"]),
    "reduce root tensor": (reduce(0, 1), ValueError, ["reduce", "invalid root tensor: 1"]),
    "gather to above": (
        lambda t: gather([], [t], 2),
        ValueError,
        ["gather", "invalid root rank: 2"],
    ),
    "gather without outputs": (
        lambda t: gather([], [t]),
        ValueError,
        ["gather: output", "0 lists given", "single-element output list containing a list with 2"],
    ),
    "gather with outputs elsewhere": (
        lambda t: gather([[t, t]], [t], 0),
        ValueError,
        ["gather", "requires empty output on non-root"],
    ),
    "gather with too few": (
        lambda t: gather([[t]], [t]),
        ValueError,
        ["gather", "output", "2 expected, 1 given"],
    ),
    "gather of another size": (
        lambda t: gather([[t.clone(), torch.ones(5)]], [t]),
        ValueError,
        ["gather: invalid tensor size", "output[1]", "float32[5]", "float32[4]"],
    ),
    "gather of another dtype": (
        lambda t: gather([[t.clone(), t.int()]], [t]),
        TypeError,
        ["gather: output[1]", "int32[4]", "float32[4]"],
    ),
    "gather of nothing": (
        lambda t: gather([], [], 0),
        ValueError,
        ["gather: input", "requires non-empty tensor list"],
    ),
    "scatter from above": (
        lambda t: scatter([t], [], 7),
        ValueError,
        ["scatter", "invalid root rank: 7"],
    ),
    "scatter without inputs": (
        lambda t: scatter([t], []),
        ValueError,
        ["scatter: input", "0 lists given"],
    ),
    "scatter with inputs elsewhere": (
        lambda t: scatter([t], [[t, t]], 0),
        ValueError,
        ["scatter", "requires empty input on non-root"],
    ),
    "scatter of another size": (
        lambda t: scatter([t], [[torch.ones(3), t.clone()]]),
        ValueError,
        ["scatter: invalid tensor size", "input[0]", "float32[3]", "float32[4]"],
    ),
    "reduce_scatter of two lists": (
        lambda t: reduce_scatter([t], [[t, t], [t, t]]),
        ValueError,
        ["reduce_scatter: input", "2 lists given"],
    ),
    "reduce_scatter of another size": (
        lambda t: reduce_scatter([t], [[t.clone(), torch.ones(9)]]),
        ValueError,
        ["reduce_scatter: invalid tensor size", "input[1]", "float32[9]", "float32[4]"],
    ),
    "reduce_scatter of an expanded output": (
        lambda t: reduce_scatter([torch.ones(1).expand(4)], [[t, t]]),
        ValueError,
        ["reduce_scatter: output", "overlaps itself"],
    ),
    "own part of another size": (
        lambda t: dist.all_gather([torch.ones(4), torch.ones(3)], t),
        ValueError,
        ["all_gather: invalid tensor size", "output[1]", "float32[3]", "float32[4]"],
    ),
    "list of nothing": (
        lambda t: ours().allreduce_coalesced([], dist.AllreduceCoalescedOptions()),
        ValueError,
        ["all_reduce: tensors", "requires non-empty tensor list"],
    ),
    "list with one that overlaps itself": (
        lambda t: ours().allreduce_coalesced(
            [t, torch.ones(1).expand(4)], dist.AllreduceCoalescedOptions()
        ),
        ValueError,
        ["all_reduce: tensors[1]", "overlaps itself"],
    ),
    "lists of different lengths": (
        lambda t: dist.group.WORLD.allgather_into_tensor_coalesced([t], [t, t], AllgatherOptions()),
        ValueError,
        ["all_gather_into_tensor: outputs", "2 expected, 1 given"],
    ),
    "one output too small": (
        lambda t: dist.group.WORLD.allgather_into_tensor_coalesced(
            [torch.ones(8), torch.ones(7)], [t, t], AllgatherOptions()
        ),
        ValueError,
        ["invalid tensor size", "output[1]", "float32[7]", "8 elements"],
    ),
    "one input too small": (
        lambda t: dist.group.WORLD.reduce_scatter_tensor_coalesced(
            [torch.ones(2), torch.ones(3)], [t, t], ReduceScatterOptions()
        ),
        ValueError,
        ["invalid tensor size", "input[1]", "float32[4]", "6 elements"],
    ),
    "splits that do not add up": (
        lambda t: split(t, [2, 2], [1, 2]),
        ValueError,
        ["all_to_all_single", "Split sizes doesn't match total dim 0 size", "input", "1, 2"],
    ),
    "a split below zero": (
        lambda t: split(t, [5, -1], [2, 2]),
        ValueError,
        ["all_to_all_single", "Split sizes", "output", "5, -1"],
    ),
    "too many splits": (
        lambda t: split(t, [], [2, 1, 1]),
        ValueError,
        ["all_to_all_single", "Number of tensor splits not equal to group size", "3 splits"],
    ),
    "rows that do not divide": (
        lambda t: ours().alltoall_base(t[:3].clone(), t[:3], [], [], AllToAllOptions()),
        ValueError,
        ["all_to_all_single", "dim 0 does not divide equally across group size", "float32[3]"],
    ),
    "own split": (
        lambda t: split(t, [3, 1], [2, 2]),
        ValueError,
        ["all_to_all_single: invalid tensor size", "rank 1", "2 elements of input", "1 of output"],
    ),
    "outputs too few": (
        lambda t: exchange([t], [t.clone(), t.clone()]),
        ValueError,
        ["all_to_all", "output", "2 expected, 1 given"],
    ),
    "inputs of several dtypes": (
        lambda t: exchange([t, t], [t.clone(), t.int()]),
        TypeError,
        ["all_to_all: input[1]", "int32[4]", "float32[4]"],
    ),
    "send to nobody": (
        lambda t: ours().send([t], 2, 0),
        ValueError,
        ["send: invalid destination rank: 2", "[0, 2)"],
    ),
    "receive from nobody": (
        lambda t: ours().recv([t], -1, 0),
        ValueError,
        ["recv: invalid source rank: -1"],
    ),
    "tag below zero": (
        lambda t: ours().send([t], 0, -3),
        ValueError,
        ["send: invalid tag: -3", "at least 0"],
    ),
    "two tensors to send": (
        lambda t: ours().send([t, t], 0, 0),
        ValueError,
        ["send: tensor", "single-element", "2 tensors given"],
    ),
    "receive into what overlaps itself": (
        lambda t: ours().recv_anysource([torch.ones(1).expand(4)], 0),
        ValueError,
        ["recv: tensor", "overlaps itself"],
    ),
}


def _bad(case: str) -> Raised | None:
    return provoke(BAD[case][0])


@pytest.mark.parametrize("case", BAD)
def test_bad_input(pools, case: str):
    _, kind, words = BAD[case]
    error = pools(2).run(_bad, case)[-1]
    assert error is not None, "nothing was raised"
    assert kind.__name__ in error.kinds, error
    missing = [word for word in words if word not in error.text]
    assert not missing, f"{missing} not in: {error}"
    assert error.after < 30, error
