"""Stand-ins for tensors. A tensor is created on this rank's device of the sender's kind."""

from __future__ import annotations

import pickle

import pytest
import torch

from torch_ringdist._tensor_meta import TensorMeta


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_allocated_is_alike(device: str):
    tensor = torch.ones(3, 0, 2, dtype=torch.bfloat16, device=device)
    place = pickle.loads(pickle.dumps(TensorMeta.of(tensor)))
    made = place.allocate()
    assert (made.shape, made.dtype, made.device) == (tensor.shape, tensor.dtype, tensor.device)
    assert TensorMeta.of(torch.empty(5, dtype=torch.int64)).bytes == 40
