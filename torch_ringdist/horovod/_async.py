"""Operations that return a handle at once, for poll() and synchronize().

Their tensors must not change until then. Each raises an error before anything is sent if the call
itself is wrong. ValueError stands for a missing init(), a rank outside of the process set, a name
in use, or a bad tensor or splits. TypeError stands for a dtype. Errors that involve other ranks are
raised by synchronize() as HorovodInternalError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._errors import HorovodInternalError, as_internal
from torch_ringdist.horovod._handles import Finish, new_handle, synchronize
from torch_ringdist.horovod._reductions import Adasum, Average, ReduceOp, Sum, adasum, chosen
from torch_ringdist.horovod._sets import ProcessSet, global_process_set, group_of

Factors = tuple[float, float]


# Names of the ops in the native module.
_NATIVE = {op: op.name.lower() for op in ReduceOp if op != Adasum}


# Returns an uninitialized tensor of the same shape, dtype and device.
def new_like(like: Tensor) -> Tensor:
    return like.new_empty(like.shape)


def _nothing() -> None:
    pass


def _first(results: Sequence[Tensor]) -> Tensor:
    return results[0]


def _start_allreduce(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    result: Callable[[], Any],
    name: str | None,
    op: ReduceOp,
    factors: Factors,
    process_set: ProcessSet,
) -> int:
    """Starts the operation. `result` makes the result of synchronize() once the outputs are
    valid."""
    if op == Adasum:
        return _start_adasum(inputs, outputs, result, name, factors, process_set)
    group = group_of(process_set, "allreduce")
    with as_internal(), group.calling("allreduce", name) as full_name:
        work = group.named.allreduce(full_name, inputs, outputs, _NATIVE[op], *factors)
    return new_handle(work, lambda _: result())


def _start_adasum(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    result: Callable[[], Any],
    name: str | None,
    factors: Factors,
    process_set: ProcessSet,
) -> int:
    """Starts an Adasum reduction: gathers the inputs and combines them on each rank."""
    group = group_of(process_set, "allreduce")
    for one in inputs:
        if not one.is_floating_point():
            raise ArgumentError(f"allreduce: Adasum takes floating dtypes, got {one.dtype}")
    manner = f"Adasum of {[list(one.shape) for one in inputs]}, factors {factors}"
    with torch.no_grad():
        rows = [(one * factors[0]).unsqueeze(0) for one in inputs]
    with as_internal(), group.calling("allreduce", name) as full_name:
        work = group.named.allgather(full_name, rows, manner)

    def finish(results: Sequence[Tensor]) -> Any:
        with torch.no_grad():
            for output, parts in zip(outputs, results, strict=True):
                output.copy_(adasum(parts) * factors[1])
        return result()

    return new_handle(work, finish)


def reduce_now(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str | None,
    op: ReduceOp,
    factors: Factors,
    process_set: ProcessSet,
) -> None:
    """Reduces into the outputs, which may be the inputs, and waits."""
    if op == Adasum:
        synchronize(_start_adasum(inputs, outputs, _nothing, name, factors, process_set))
        return
    group = group_of(process_set, "allreduce")
    with as_internal():
        with group.calling("allreduce", name) as full_name:
            work = group.named.allreduce(full_name, inputs, outputs, _NATIVE[op], *factors, True)
        work.wait()


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts allreduce() and returns a handle."""
    output, factors = new_like(tensor), (prescale_factor, postscale_factor)
    how = chosen(op, average)
    return _start_allreduce([tensor], [output], lambda: output, name, how, factors, process_set)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts allreduce_() and returns a handle."""
    factors = prescale_factor, postscale_factor
    how = chosen(op, average)
    return _start_allreduce([tensor], [tensor], lambda: tensor, name, how, factors, process_set)


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts grouped_allreduce() and returns a handle."""
    outputs, factors = [new_like(one) for one in tensors], (prescale_factor, postscale_factor)
    how = chosen(op, average)
    return _start_allreduce(tensors, outputs, lambda: outputs, name, how, factors, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts grouped_allreduce_() and returns a handle."""
    factors = prescale_factor, postscale_factor
    how = chosen(op, average)
    return _start_allreduce(tensors, tensors, lambda: tensors, name, how, factors, process_set)


def start_sparse(tensor: Tensor, name: str, op: ReduceOp, process_set: ProcessSet) -> int:
    """Starts sparse_allreduce_async() and returns a handle."""
    if op not in (Sum, Average):
        raise HorovodInternalError("sparse_allreduce_async: op must be hvd.Sum or hvd.Average")
    coo = tensor if tensor.is_sparse else tensor.to_sparse()
    # Not coalesced here, because each rank may have other entries.
    parts = [coo._indices().T.contiguous().detach(), coo._values().detach()]
    group = group_of(process_set, "sparse_allreduce_async")
    manner = f"sparse allreduce of {list(coo.shape)}, {ReduceOp(op).name}"
    with as_internal(), group.calling("allreduce", name) as full_name:
        work = group.named.allgather(full_name, parts, manner)

    def finish(results: Sequence[Tensor]) -> Tensor:
        where, what = results
        if op == Average:
            what = what / group.size
        return torch.sparse_coo_tensor(
            where.T,
            what,
            coo.size(),
            dtype=what.dtype,
            device=what.device,
            check_invariants=False,
        )

    return new_handle(work, finish)


def sparse_allreduce_async(
    tensor: Tensor,
    name: str,
    op: ReduceOp,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Tensor]:
    """Sums or averages sparse (COO) tensors by gathering the indices and values of all ranks.

    Returns a function that waits and returns the result, not coalesced. Raises HorovodInternalError
    for another op.
    """
    handle = start_sparse(tensor, name, op, process_set)
    return lambda: synchronize(handle)


def _start_allgather(
    tensors: Sequence[Tensor], result: Finish, name: str | None, process_set: ProcessSet
) -> int:
    group = group_of(process_set, "allgather")
    with as_internal(), group.calling("allgather", name) as full_name:
        work = group.named.allgather(full_name, [one.detach() for one in tensors])
    return new_handle(work, result)


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts allgather() and returns a handle."""
    return _start_allgather([tensor], _first, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts grouped_allgather() and returns a handle."""
    return _start_allgather(tensors, list, name, process_set)


def _start_broadcast(
    tensor: Tensor, output: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> int:
    group = group_of(process_set, "broadcast")
    if root_rank not in group.members:
        raise ArgumentError(
            f"broadcast: root_rank must be a global rank of {process_set}, got {root_rank}"
        )
    root = group.members.index(root_rank)
    ours = tensor.detach()
    theirs = ours if output is tensor else output.detach()
    with as_internal(), group.calling("broadcast", name) as full_name:
        work = group.named.broadcast(full_name, ours, theirs, root)
    return new_handle(work, lambda _: output)


def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts broadcast() and returns a handle."""
    return _start_broadcast(tensor, new_like(tensor), root_rank, name, process_set)


def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts broadcast_() and returns a handle."""
    return _start_broadcast(tensor, tensor, root_rank, name, process_set)


def splits_of(tensor: Tensor, splits: Tensor | Sequence[int] | None, size: int) -> list[int]:
    """Returns the rows for each of `size` ranks; equal numbers if `splits` is None.

    Raises ValueError if the splits are not integers, or the rows cannot be divided equally.
    """
    rows = tensor.shape[0] if tensor.dim() else 1
    if splits is None:
        if rows % size:
            raise ArgumentError(
                f"alltoall: without splits the {rows} rows of the tensor must divide by the "
                f"{size} ranks"
            )
        return [rows // size] * size
    if isinstance(splits, Tensor):
        if splits.dtype not in (torch.int32, torch.int64) or splits.dim() != 1:
            raise ArgumentError(
                "alltoall: splits must be int32 or int64 and of one dimension, got "
                f"{splits.dtype} of shape {list(splits.shape)}"
            )
        return splits.tolist()
    return list(splits)


def alltoall_async(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts alltoall() and returns a handle, of a pair: the result, and rows by source rank."""
    group = group_of(process_set, "alltoall")
    rows = splits_of(tensor, splits, group.size)
    with as_internal(), group.calling("alltoall", name) as full_name:
        work = group.named.alltoall(full_name, tensor.detach(), rows)
    return new_handle(work, lambda results: (results[0], results[1].to(torch.int32)))


def _reducescatter_op(op: ReduceOp) -> str:
    if op not in (Sum, Average):
        raise HorovodInternalError("reducescatter: op must be hvd.Sum or hvd.Average")
    return ReduceOp(op).name.lower()


def _start_reducescatter(
    tensors: Sequence[Tensor],
    result: Finish,
    name: str | None,
    op: ReduceOp,
    factors: Factors,
    process_set: ProcessSet,
) -> int:
    group = group_of(process_set, "reducescatter")
    how = _reducescatter_op(op)
    with as_internal(), group.calling("reducescatter", name) as full_name:
        ours = [one.detach() for one in tensors]
        work = group.named.reducescatter(full_name, ours, how, *factors)
    return new_handle(work, result)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts reducescatter() and returns a handle."""
    factors = prescale_factor, postscale_factor
    return _start_reducescatter([tensor], _first, name, op, factors, process_set)


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts grouped_reducescatter() and returns a handle."""
    factors = prescale_factor, postscale_factor
    return _start_reducescatter(tensors, list, name, op, factors, process_set)
