"""Collectives with a codec per call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from torch_ringdist import _native
from torch_ringdist._errors import ArgumentError

# torch.compile leaves these functions out of its graphs. Each one skips its own frame for that.
_NO_GRAPH = "collectives of torch_ringdist run in Python"


def backend_of(group: dist.ProcessGroup | None, caller: str) -> Any:
    """Returns the ringdist backend that serves the group's CPU tensors.

    Args:
        group: a process group, or None for the default group.
        caller: the function that the error messages name.

    Raises:
        TypeError: `group` is not a process group.
        ArgumentError: this rank is not in the group, or another backend serves its CPU tensors.
    """
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.skip_frame(_NO_GRAPH)
    native = _native.load()
    if group is None:
        group = dist.group.WORLD
        if group is None:
            raise ArgumentError(
                f"ringdist: {caller}: there is no default group yet; "
                'call torch.distributed.init_process_group("ringdist") first'
            )
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError(f"ringdist: {caller}: this rank is not a member of the group given")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"ringdist: {caller}: group must be a ProcessGroup or None, got {type(group).__name__}"
        )
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        backend = None
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend in one that checks calls.
    backend = getattr(backend, "wrapped_pg", backend)
    if not isinstance(backend, native.ProcessGroupRing):
        name = backend.name() if backend is not None else "no backend"
        raise ArgumentError(
            f"ringdist: {caller}: group must be one of the backend ringdist; "
            f"{name} serves its CPU tensors"
        )
    return backend


def all_reduce(
    tensor: torch.Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    codec: str | None = None,
    residual: torch.Tensor | None = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Reduces a tensor with ``torch.distributed.all_reduce`` and a codec.

    All ranks get the same decoded values. Without `codec` and `residual` it is the function of
    torch.distributed.

    Args:
        tensor: reduced in place. It is float32, bfloat16 or float16, on the CPU or on CUDA.
        op: SUM or AVG.
        group: a group of the backend ringdist, or None for the default group. All its members call
            this function.
        codec: "int8", "topk:0.01", or "A>B" for contributions and sums; ``python -m torch_ringdist
            info`` lists them. None uses the group's option; "none" sends uncompressed values.
        residual: buffer for error feedback, initially zero. It is float32 and contiguous, with one
            element per element of `tensor`. The operation adds it to this rank's values and stores
            in it what the codec loses of them, and of the sums that this rank encodes. Over many
            calls, the results and the residuals of all ranks add up to the inputs (for AVG, times
            the group size). Do not touch it before the operation is complete. A failed operation
            leaves it unchanged. While the operation runs, it takes the same amount of memory again.
        async_op: return at once, with a Work.

    Returns:
        A Work if `async_op`, else None.

    Raises:
        ValueError: an unknown codec or a bad parameter, another op, a residual that does not fit or
            that the codec does not support, a group of another backend. Nothing was sent.
        TypeError: an argument of another type, a tensor without memory of its own (of a DTensor,
            pass `to_local()`), a dtype or device that is not supported. Nothing was sent.
        torch.distributed.DistBackendError: the group failed, as in any operation, or the codecs of
            the ranks differ.
    """
    if codec is None and residual is None:
        return dist.all_reduce(tensor, op, group, async_op)
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.skip_frame(_NO_GRAPH)
    _check_op("all_reduce", op)
    backend = _prepare("all_reduce", group, codec, residual, tensor=tensor)
    work = _native.load().all_reduce(backend, tensor, op, codec, residual, async_op)
    return _finish(work, async_op)


def reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    codec: str | None = None,
    residual: torch.Tensor | None = None,
    async_op: bool = False,
    *,
    _pieces: Sequence[tuple[int, str]] = (),  # elements and codec of each piece of a part
) -> dist.Work | None:
    """Reduces and scatters a tensor with ``torch.distributed.reduce_scatter_tensor`` and a codec.

    `residual` has one element per element of `input`. Only contributions are sent, so the second
    codec of a pair "A>B" encodes nothing. Everything else is as in all_reduce().
    """
    if codec is None and residual is None:
        return dist.reduce_scatter_tensor(output, input, op, group, async_op)
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.skip_frame(_NO_GRAPH)
    _check_op("reduce_scatter_tensor", op)
    tensors = {"output": output, "input": input}
    backend = _prepare("reduce_scatter_tensor", group, codec, residual, **tensors)
    native = _native.load()
    work = native.reduce_scatter(backend, output, input, op, codec, residual, async_op, _pieces)
    return _finish(work, async_op)


def all_gather_into_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    codec: str | None = None,
    async_op: bool = False,
    *,
    _pieces: Sequence[tuple[int, str]] = (),
) -> dist.Work | None:
    """Gathers tensors with ``torch.distributed.all_gather_into_tensor`` and a codec.

    This rank's own part of `output` has the decoded values too, so `output` is the same on all
    ranks. Arguments and errors are those of all_reduce(), without a residual.
    """
    if codec is None:
        return dist.all_gather_into_tensor(output, input, group, async_op)
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.skip_frame(_NO_GRAPH)
    backend = _prepare("all_gather_into_tensor", group, codec, None, output=output, input=input)
    work = _native.load().all_gather(backend, output, input, codec, async_op, _pieces)
    return _finish(work, async_op)


# Raises TypeError if `op` is not a ReduceOp. The native module checks which one it is.
def _check_op(caller: str, op: Any) -> None:
    if not isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
        raise TypeError(
            f"ringdist: {caller}: op must be a torch.distributed.ReduceOp, SUM or AVG, "
            f"got {op!r} of type {type(op).__name__}"
        )


# Checks the types of the arguments and returns the backend. Raises as all_reduce() does.
def _prepare(
    caller: str,
    group: dist.ProcessGroup | None,
    codec: str | None,
    residual: torch.Tensor | None,
    **tensors: torch.Tensor,
) -> Any:
    if codec is None:
        raise ValueError(
            f"ringdist: {caller}: residual needs a codec of the call, as codec='int4'; got None"
        )
    if not isinstance(codec, str):
        raise TypeError(
            f"ringdist: {caller}: codec must be text such as 'int4' or None, "
            f"got {codec!r} of type {type(codec).__name__}"
        )
    if not codec:
        raise ValueError(f"ringdist: {caller}: codec is empty; 'none' is uncompressed")
    given = tensors if residual is None else {**tensors, "residual": residual}
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"ringdist: {caller}: {name} must be a tensor, got {type(tensor).__name__}"
            )
    return backend_of(group, caller)


# Returns `work` if `async_op`; else waits for it and returns None.
def _finish(work: dist.Work, async_op: bool) -> dist.Work | None:
    if async_op:
        return work
    work.wait()
    return None
