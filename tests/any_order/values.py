"""Inputs and expected outputs of each rank: integers with sums that never round."""

from __future__ import annotations

import random

import torch
from torch import Tensor

import torch_ringdist.horovod as hvd
from tests.any_order.plan import Call

MOST_ROWS = 3  # for one rank, or of one


def given(call: Call, member: int, time: int) -> list[Tensor]:
    """Returns the tensors that this member passes at this repetition of the call."""
    noise = torch.Generator().manual_seed(call.seed + 100 * time + member)
    out = []
    for place, dtype in enumerate(call.dtypes):
        low, high = (1, 3) if call.op == hvd.Product else (0, 6)
        if dtype != torch.uint8:
            low = -high + 1
        whole = torch.randint(low, high, _shape(call, member, time, place), generator=noise)
        if call.op == hvd.Average and dtype.is_floating_point:
            whole *= len(call.members)
        out.append(whole.to(dtype))
    return out


def splits_of(call: Call, member: int, time: int) -> list[int]:
    """Returns the number of rows that alltoall sends to each member."""
    drawn, size = random.Random(f"{call.seed} {member} {time}"), len(call.members)
    if call.splits:
        return [drawn.randint(0, MOST_ROWS) for _ in range(size)]
    return [drawn.randint(0, MOST_ROWS)] * size


def _shape(call: Call, member: int, time: int, place: int) -> tuple[int, ...]:
    shape = call.shapes[place]
    if call.kind == "alltoall":
        return (sum(splits_of(call, member, time)), *shape[1:])
    if "allgather" in call.kind and shape:
        return ((shape[0] + member + time + place) % (MOST_ROWS + 1), *shape[1:])
    return shape


def expected(call: Call, member: int, time: int) -> list[Tensor]:
    """Returns the member's result for each tensor, and for alltoall also the others' splits."""
    parts = [given(call, other, time) for other in range(len(call.members))]
    by_tensor = [list(one) for one in zip(*parts, strict=True)]
    if "broadcast" in call.kind:
        return parts[call.members.index(call.root)]
    if "allgather" in call.kind:
        return [torch.cat([part.reshape(part.shape or (1,)) for part in one]) for one in by_tensor]
    if call.kind == "alltoall":
        return _exchanged(call, member, time, by_tensor[0])
    results = [_reduced(call, one) for one in by_tensor]
    if "reducescatter" in call.kind:
        return [one.tensor_split(len(call.members))[member] for one in results]
    return results


def _exchanged(call: Call, member: int, time: int, parts: list[Tensor]) -> list[Tensor]:
    splits = [splits_of(call, other, time) for other in range(len(parts))]
    rows = [part.split(theirs)[member] for part, theirs in zip(parts, splits, strict=True)]
    received = torch.tensor([theirs[member] for theirs in splits], dtype=torch.int32)
    return [torch.cat(rows), received]


def _reduced(call: Call, parts: list[Tensor]) -> Tensor:
    """Reduces the parts. For integers, every step except the last one truncates, too."""
    before, after = call.factors
    wide = torch.stack([_settled(part.double() * before, part.dtype) for part in parts])
    if call.op == hvd.Sum or call.op == hvd.Average:
        out = wide.sum(0) / (len(parts) if call.op == hvd.Average else 1)
    elif call.op == hvd.Product:
        out = wide.prod(0)
    else:
        out = wide.amin(0) if call.op == hvd.Min else wide.amax(0)
    return _settled(_settled(out, parts[0].dtype) * after, parts[0].dtype).to(parts[0].dtype)


def _settled(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values if dtype.is_floating_point else values.trunc()
