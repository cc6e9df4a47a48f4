"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from torch_ringdist.horovod._ops import allreduce
from torch_ringdist.horovod._reductions import Sum
from torch_ringdist.horovod._sets import ProcessSet, global_process_set


class SyncBatchNorm(_BatchNorm):
    """Normalizes like torch.nn.BatchNorm1d to 3d, in training over the batches of all ranks.

    Batch sizes may differ between ranks. It also works on CPUs. The forward pass has two sums,
    first for the mean, then for the squared deviations from it. The backward pass also has two.

    Args:
        num_features, eps, momentum, affine, track_running_stats: see torch.nn.BatchNorm2d.
        process_set: the ranks.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """Normalizes `input` of shape [batch, num_features, ...]; the result has the same shape."""
        self._check_input_dim(input)
        by_batch = self.training or not self.track_running_stats
        if not by_batch:
            return batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        mean, variance, count = self._statistics(input)
        if self.training and self.track_running_stats:
            self._remember(mean.detach(), variance.detach(), count)
        shape = [1, -1] + [1] * (input.dim() - 2)
        out = (input - mean.view(shape)) * torch.rsqrt(variance.view(shape) + self.eps)
        if self.weight is not None:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(input.dtype)

    def _statistics(self, input: Tensor) -> tuple[Tensor, Tensor, float]:
        """Returns mean and (biased) variance per feature, and the number of values per feature."""
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        dims = [dim for dim in range(input.dim()) if dim != 1]
        own = wide.new_full((1,), input.numel() / input.shape[1])
        sums = allreduce(torch.cat([wide.sum(dims), own]), op=Sum, process_set=self.process_set)
        count = float(sums[-1].detach())
        if count <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got {int(count)}"
            )
        mean = sums[:-1] / count
        shape = [1, -1] + [1] * (input.dim() - 2)
        squares = (wide - mean.view(shape)).square().sum(dims)
        return mean, allreduce(squares, op=Sum, process_set=self.process_set) / count, count

    # Updates the running statistics.
    def _remember(self, mean: Tensor, variance: Tensor, count: float) -> None:
        batches, means, variances = self.num_batches_tracked, self.running_mean, self.running_var
        assert batches is not None and means is not None and variances is not None
        batches.add_(1)
        share = 1 / float(batches) if self.momentum is None else self.momentum
        means.lerp_(mean.to(means.dtype), share)
        unbiased = variance * (count / (count - 1))
        variances.lerp_(unbiased.to(variances.dtype), share)
