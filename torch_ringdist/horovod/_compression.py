"""Compression of tensors before they are sent, which scripts choose by compression=."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ringdist.horovod._codec import codec_for


class Compressor:
    """Converts tensors before an allreduce, and its results back."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Returns the tensor to send, and the context for decompress()."""
        raise NotImplementedError

    # Converts a result back; `ctx` is the context of compress().
    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors unchanged."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as fp16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        if not tensor.dtype.is_floating_point:
            return tensor, tensor.dtype
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor.to(ctx)


class Compression:
    """Choices for compression= of allreduce() and others."""

    none = NoneCompressor
    fp16 = FP16Compressor
    codec = staticmethod(codec_for)
