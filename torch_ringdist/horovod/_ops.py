"""Operations that wait for their result; those that return a new tensor are differentiable.

Each raises ValueError or TypeError, before anything is sent, if the call itself is wrong. It raises
HorovodInternalError for failures that involve other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_ringdist.horovod import _async
from torch_ringdist.horovod._compression import Compression, Compressor
from torch_ringdist.horovod._errors import as_internal
from torch_ringdist.horovod._handles import synchronize
from torch_ringdist.horovod._reductions import Average, ReduceOp, Sum, chosen
from torch_ringdist.horovod._sets import ProcessSet, global_process_set, group_of


def _of_gradient(name: str | None) -> str | None:
    """Returns the name for a backward pass. Names match its calls if ranks run them in different
    orders."""
    return name and f"{name}.gradient"


class _Allreduce(torch.autograd.Function):
    """Reduces tensors; their gradients are reduced in the same way."""

    @staticmethod
    def forward(ctx: Any, how: dict[str, Any], name: str | None, *tensors: Tensor) -> Any:
        ctx.how, ctx.name = how, name
        outputs = tuple(_async.new_like(one) for one in tensors)
        _async.reduce_now(tensors, outputs, name, **how)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *_Allreduce.apply(ctx.how, _of_gradient(ctx.name), *gradients)


def _allreduced(how: dict[str, Any], name: str | None, *tensors: Tensor) -> Sequence[Tensor]:
    """Uses _Allreduce only if autograd needs it."""
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        return _Allreduce.apply(how, name, *tensors)
    outputs = [_async.new_like(one) for one in tensors]
    _async.reduce_now(tensors, outputs, name, **how)
    return outputs


def _compressed(
    function: Callable[..., Sequence[Tensor]],
    tensors: Sequence[Tensor],
    name: str | None,
    compression: type[Compressor],
    how: dict[str, Any],
) -> list[Tensor]:
    """Calls the function with `how`, the name and the compressed tensors; returns decompressed
    results."""
    pairs = [compression.compress(one) for one in tensors]
    results = function(how, name, *[small for small, _ in pairs])
    return [compression.decompress(one, ctx) for one, (_, ctx) in zip(results, pairs, strict=True)]


def _how(
    op: ReduceOp | None,
    average: bool | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> dict[str, Any]:
    return {
        "op": chosen(op, average),
        "factors": (prescale_factor, postscale_factor),
        "process_set": process_set,
    }


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces the tensors of that name over all ranks of the set.

    Args:
        tensor: has the same shape and dtype on all ranks.
        average: older form of op. True is hvd.Average, False is hvd.Sum.
        name: at most one operation at a time has this name. Calls without a name match by order.
        compression: conversion before sending, and of the result.
        op: hvd.Average if None; else Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: factors of the tensor and of the result. They are applied
            in fp32 to fp16, bf16 and fp32, and in fp64 to other dtypes; integers are truncated.
        process_set: the ranks.

    Returns:
        A new tensor. Its gradient is reduced in the same way.
    """
    how = _how(op, average, prescale_factor, postscale_factor, process_set)
    [out] = _compressed(_allreduced, [tensor], name, compression, how)
    return out


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Runs allreduce() in place and returns the tensor."""
    how = _how(op, average, prescale_factor, postscale_factor, process_set)
    _async.reduce_now([tensor], [tensor], name, **how)
    return tensor


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Runs allreduce() of several tensors as one operation."""
    how = _how(op, average, prescale_factor, postscale_factor, process_set)
    return _compressed(_allreduced, tensors, name, compression, how)


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Tensor]:
    """Runs grouped_allreduce() in place and returns the tensors."""
    how = _how(op, average, prescale_factor, postscale_factor, process_set)
    _async.reduce_now(tensors, tensors, name, **how)
    return tensors


class _Allgather(torch.autograd.Function):
    """Gathers rows. The gradient of a rank's rows is the Average of all ranks' gradients for
    them."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Tensor) -> Any:
        ctx.process_set, ctx.name = process_set, name
        ctx.shapes = [one.shape for one in tensors]
        return tuple(synchronize(_async.grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        group = group_of(ctx.process_set, "allgather")
        rows = [shape[0] if shape else 1 for shape in ctx.shapes]
        name = _of_gradient(ctx.name)
        mine = torch.tensor([rows], dtype=torch.int64, device="cpu")
        all_rows = allgather(mine, name and f"{name}.rows", ctx.process_set)
        begins = all_rows[: group.rank].sum(0).tolist()
        means = grouped_allreduce(gradients, name=name, process_set=ctx.process_set)
        own = [
            mean[begin : begin + count].reshape(shape)
            for mean, begin, count, shape in zip(means, begins, rows, ctx.shapes, strict=True)
        ]
        return None, None, *own


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Concatenates the rows (dimension 0) of all ranks in rank order.

    Args:
        tensor: may differ between ranks only in its number of rows. A scalar is a row.
        name, process_set: see allreduce().

    Returns:
        A new tensor. The gradient of a rank's own rows is the Average over all ranks.
    """
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Runs allgather() of several tensors at once."""
    return list(_Allgather.apply(name, process_set, *tensors))


class _Broadcast(torch.autograd.Function):
    """Broadcasts a tensor. The root's gradient is the Average of all, that of other ranks is
    zero."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Any:
        ctx.root_rank, ctx.process_set, ctx.name = root_rank, process_set, name
        return synchronize(_async.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        [gradient] = gradients
        group = group_of(ctx.process_set, "broadcast")
        mean = allreduce(gradient, name=_of_gradient(ctx.name), process_set=ctx.process_set)
        is_root = group.members[group.rank] == ctx.root_rank
        return (mean if is_root else torch.zeros_like(mean)), None, None, None


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the root's tensor on all ranks.

    Args:
        tensor: has the same shape and dtype on all ranks.
        root_rank: a global rank in the set.
        name, process_set: see allreduce().

    Returns:
        A new tensor. The root's gradient is the Average of all ranks', the others' is zero.
    """
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Runs broadcast() in place and returns the tensor."""
    return synchronize(_async.broadcast_async_(tensor, root_rank, name, process_set))


class _Alltoall(torch.autograd.Function):
    """Exchanges rows; gradients return to the ranks that sent the rows."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> Any:
        group = group_of(process_set, "alltoall")
        rows = _async.splits_of(tensor, splits, group.size)
        handle = _async.alltoall_async(tensor, rows, name, process_set)
        ctx.process_set, ctx.name = process_set, name
        ctx.rows = tensor.shape[0] if tensor.dim() else 1
        result, ctx.received = synchronize(handle)
        if splits is None:
            return result
        ctx.mark_non_differentiable(ctx.received)
        return result, ctx.received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        name = _of_gradient(ctx.name)
        back, _ = alltoall(gradients[0], ctx.received, name, ctx.process_set)
        if unsent := ctx.rows - len(back):
            back = torch.cat([back, back.new_zeros(unsent, *back.shape[1:])])
        return back, None, None, None


def alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to each rank, and returns the rows from all ranks in rank order.

    Args:
        tensor: may differ between ranks only in its number of rows (dimension 0).
        splits: rows for each rank, as int32 or int64; further rows are not sent. None sends equal
            numbers.
        name, process_set: see allreduce().

    Returns:
        A new tensor and, with splits, the number of rows from each rank (int32).
    """
    return _Alltoall.apply(tensor, splits, name, process_set)


class _Reducescatter(torch.autograd.Function):
    """Reduces and scatters tensors. Each rank has the gradient of its rows; for Average, that of
    the mean."""

    @staticmethod
    def forward(ctx: Any, how: dict[str, Any], name: str | None, *tensors: Tensor) -> Any:
        ctx.how, ctx.name = how, name
        return tuple(synchronize(_async.grouped_reducescatter_async(tensors, name, **how)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        process_set = ctx.how["process_set"]
        scaled = list(gradients)
        if ctx.how["op"] == Sum:
            scaled = [one * process_set.size() for one in scaled]
        factor = ctx.how["prescale_factor"] * ctx.how["postscale_factor"]
        if factor != 1:
            scaled = [one * factor for one in scaled]
        return None, None, *grouped_allgather(scaled, _of_gradient(ctx.name), process_set)


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Returns this rank's share (dimension 0) of the sum or mean of all ranks' tensors. The first
    (rows modulo size) ranks get one more row.

    Args:
        tensor: not a scalar; has the same shape and dtype on all ranks.
        op: hvd.Average or hvd.Sum.
        name, compression, process_set, prescale_factor, postscale_factor: see allreduce().

    Returns:
        A new tensor. Gradients are gathered; those of a Sum are multiplied by the set's size.

    Raises:
        HorovodInternalError: another op.
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Runs reducescatter() of several tensors at once."""
    how = {
        "op": op,
        "process_set": process_set,
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
    }
    return _compressed(_Reducescatter.apply, tensors, name, compression, how)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the set have called it; does not wait for other operations."""
    group = group_of(process_set, "barrier")
    with as_internal():
        with group.calling("barrier", None) as name:
            work = group.named.barrier(name)
        work.wait()


def join(device: int = -1) -> int:
    """Declares that this rank has no more data, and waits until all ranks have joined.

    Until then it takes part in calls of other ranks. It contributes zeros to Sum and Average (which
    divides by the full size), and nothing to Min, Max and Product. Other operations fail on their
    callers.

    Args:
        device: CUDA device of the zeros for calls with CUDA tensors; -1 for the current one. If
            torch has no CUDA device it is ignored, and zeros are on the CPU.

    Returns:
        The last rank to join, equal on all ranks.
    """
    group = group_of(global_process_set, "join")
    where = None
    if torch.cuda.is_available():
        where = device if device >= 0 else torch.cuda.current_device()
    with as_internal():
        last = group.named.join(where)
    group.joined()
    return last
