"""Describes a tensor inside pickled objects; the values are sent separately."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TensorMeta:
    """Shape, dtype and device type of a tensor, without its values.

    `device` is a device type such as "cuda", because each rank has its own device.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorMeta:
        return cls(tensor.shape, tensor.dtype, tensor.device.type)

    # Returns an uninitialized tensor of this description.
    def allocate(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    @property
    def bytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize
