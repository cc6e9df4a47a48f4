"""Compressed communication for FSDP2.

    from torch.distributed.fsdp import fully_shard
    import torch_ringdist.fsdp

    fully_shard(model)
    model.set_custom_all_gather(torch_ringdist.fsdp.AllGather("int8"))
    model.set_custom_reduce_scatter(torch_ringdist.fsdp.ReduceScatter("int8"))

Each call is for one module that fully_shard() was applied to: repeat it for the inner ones. There
is no error feedback here: a residual would have the size of the whole model on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_api

from torch_ringdist import _collectives, _native

# What the codecs take. Parameters of several dtypes are gathered as bytes, uncompressed.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class _Allocates:
    """A new tensor for each call, as FSDP's own communication has it."""

    _single = False  # "A>B" is no codec of this operation

    def __init__(self, codec: str) -> None:
        if not isinstance(codec, str):
            raise TypeError(
                f"ringdist: {type(self).__name__}: codec must be text such as 'int8', "
                f"got {codec!r} of type {type(codec).__name__}"
            )
        if not codec:
            raise ValueError(
                f"ringdist: {type(self).__name__}: codec is empty; 'none' is uncompressed"
            )
        _native.load().check_coding(codec, self._single)
        self.codec = codec

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class AllGather(_Allocates, _fsdp_api.AllGather):
    """Gathers parameters through a codec; the shards that the optimizer updates stay exact.

    Raises:
        ValueError: an unknown codec, a bad parameter of it, or a pair "A>B".
        TypeError: `codec` is not text.
    """

    _single = True

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        codec = self.codec if input_tensor.dtype in _FLOATS else "none"
        return _collectives.all_gather_into_tensor(
            output_tensor, input_tensor, group, codec, async_op
        )


class ReduceScatter(_Allocates, _fsdp_api.ReduceScatter):
    """Reduces and scatters gradients through a codec, without error feedback.

    Raises:
        ValueError: an unknown codec, or a bad parameter of it.
        TypeError: `codec` is not text.
    """

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        codec = self.codec if input_tensor.dtype in _FLOATS else "none"
        if op == dist.ReduceOp.PREMUL_SUM:  # of set_gradient_divide_factor()
            # FSDP packed the input for this call alone.
            input_tensor.mul_(op.__getstate__()[1])
            op = dist.ReduceOp.SUM
        return _collectives.reduce_scatter_tensor(
            output_tensor, input_tensor, op, group, codec, None, async_op
        )
