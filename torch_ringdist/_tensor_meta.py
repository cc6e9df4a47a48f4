"""What stands for a tensor in what is sent as objects; the tensor follows."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TensorMeta:
    """Of a tensor: all but its values. `device` is a kind of device: each rank has its own."""

    shape: torch.Size
    dtype: torch.dtype
    device: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorMeta:
        return cls(tensor.shape, tensor.dtype, tensor.device.type)

    def allocate(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    @property
    def bytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize
