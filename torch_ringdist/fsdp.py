"""Compressed communication for FSDP2.

    from torch.distributed.fsdp import fully_shard
    import torch_ringdist.fsdp

    for module in [*layers, model]:
        fully_shard(module)
    torch_ringdist.fsdp.compress(model, "int8")

A single module that fully_shard() was applied to can also be set up directly. All its parameters
then have the same codec, whatever their kind:

    module.set_custom_all_gather(torch_ringdist.fsdp.AllGather("int8"))
    module.set_custom_reduce_scatter(torch_ringdist.fsdp.ReduceScatter("int8"))

There is no error feedback here, because a residual would have the size of the whole model on every
rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_api

from torch_ringdist import _arguments as arguments
from torch_ringdist import _collectives, _native, _rules

__all__ = ["AllGather", "ReduceScatter", "compress"]

# Dtypes that codecs accept. Parameters of several dtypes are gathered as bytes, uncompressed.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class _Layout:
    """The codecs of a module's parameters, in the order of their shards in FSDP's buffers."""

    def __init__(self, shards: Sequence[Any], codecs: Sequence[str]) -> None:
        self._shards, self._codecs = shards, codecs  # shards: FSDP's description of each parameter

    def pieces(self, count: int) -> list[tuple[int, str]]:
        """Returns elements and codec of each shard, for a contribution of `count` elements per
        rank.

        Only parameters with a gradient contribute to a reduction. If `count` does not show which
        ones these are, nothing is compressed. All ranks get the same result because they contribute
        the same count.
        """
        every = [
            (shard.sharded_param.requires_grad, (shard._sharded_param_data.numel(), codec))
            for shard, codec in zip(self._shards, self._codecs, strict=True)
        ]
        for some in ([p for _, p in every], [p for learns, p in every if learns]):
            if sum(numel for numel, _ in some) == count:
                return some
        return [(count, _native.load().NO_CODEC)]


class _Allocates(_fsdp_api.Comm):
    """Base class that allocates a new tensor for each call, as FSDP's own communication does."""

    _parameters = False  # True if it transfers parameters, not gradients

    def __init__(self, codec: str, _layout: _Layout | None = None) -> None:
        if not isinstance(codec, str):
            raise TypeError(
                f"ringdist: {type(self).__name__}: codec must be text such as 'int8', "
                f"got {codec!r} of type {type(codec).__name__}"
            )
        if not codec:
            raise ValueError(
                f"ringdist: {type(self).__name__}: codec is empty; 'none' is uncompressed"
            )
        _native.load().check_coding(codec, self._parameters)
        self.codec = codec
        self._layout = _layout

    def _coding(self, contribution: torch.Tensor, parts: int) -> tuple[str, list[tuple[int, str]]]:
        """Returns the codec of a call, and those of its pieces if they differ."""
        if contribution.dtype not in _FLOATS:
            return _native.load().NO_CODEC, []
        if self._layout is None or contribution.numel() == 0:
            return self.codec, []
        return self.codec, self._layout.pieces(contribution.numel() // parts)

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class AllGather(_Allocates, _fsdp_api.AllGather):
    """Gathers parameters through a codec; the shards that the optimizer updates stay exact.

    Raises:
        ValueError: an unknown codec, a bad parameter of it, a pair "A>B", or a codec that loses too
            much of parameters. Codecs such as "int4", "onebit" and "topk:0.01" are for gradients.
        TypeError: `codec` is not text.
    """

    _parameters = True

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        codec, pieces = self._coding(input_tensor, 1)
        return _collectives.all_gather_into_tensor(
            output_tensor, input_tensor, group, codec, async_op, _pieces=pieces
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
        codec, pieces = self._coding(input_tensor, group.size())
        if op == dist.ReduceOp.PREMUL_SUM:  # set by set_gradient_divide_factor()
            # FSDP packed the input for this call alone, so it may be scaled in place.
            input_tensor.mul_(op.__getstate__()[1])
            op = dist.ReduceOp.SUM
        return _collectives.reduce_scatter_tensor(
            output_tensor, input_tensor, op, group, codec, None, async_op, _pieces=pieces
        )


def compress(
    model: nn.Module, codec: str = "int8", *, rules: Mapping[str, str] | None = None
) -> None:
    """Compresses the parameters that FSDP2 gathers and the gradients that it reduces, each by its
    own rule.

    Parameters of fewer than 1024 elements and those of norms stay uncompressed, as with
    ddp.compress(). Call it after fully_shard(), on all ranks with the same arguments. A later call
    replaces an earlier one, and compress(model, "none") turns compression off.

    Args:
        model: a model that fully_shard() was applied to, or that contains such modules, over groups
            of the backend ringdist.
        codec: a codec that preserves parameters, such as "int8", "fp8", "bf16" or "fp16".
        rules: codecs by pattern (as of fnmatch) of parameter names, such as `{"embed*": "bf16",
            "head.*": "none"}`. The first match wins.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: a codec that is unknown or loses too much of parameters, a model without
            fully_shard(), or a module with parameters on several meshes.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(arguments.message("model", "a torch.nn.Module", model))
    arguments.check_text("codec", codec)
    arguments.check_rules(rules, model)
    for each in (codec, *(rules or {}).values()):
        _native.load().check_coding(each, True)
    modules = [m for m in model.modules() if isinstance(m, FSDPModule)]
    if not modules:
        raise ValueError(
            "ringdist: compress: model has no module that fully_shard() was applied to; do so first"
        )
    resolved = _rules.resolve(model, rules, _native.load().MIN_COMPRESSED)
    chosen = {id(rule.parameter): rule.codec or codec for rule in resolved}
    for module in modules:
        group = module._get_fsdp_state()._fsdp_param_group
        if group is None:  # all its parameters belong to modules inside it
            continue
        shards = group.fsdp_params
        layout = _Layout(shards, [chosen.get(id(s.sharded_param), codec) for s in shards])
        module.set_custom_all_gather(AllGather(codec, layout))
        module.set_custom_reduce_scatter(ReduceScatter(codec, layout))
