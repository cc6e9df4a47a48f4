"""Assigns indices of the data to ranks, also if ranks change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._basics import rank, size


class ElasticSampler(Sampler[int]):
    """Yields this rank's share of the indices that no rank has taken in this epoch.

    The position in an epoch is one number, because ranks take indices in turn. So all ranks must
    record the same batches. It is meant to be an entry of a TorchState.

    Attributes:
        dataset, shuffle, seed, epoch: the arguments, and the present epoch.
        processed_num: indices of this epoch that all ranks together have recorded.
        rank, num_replicas: rank of this process, and number of ranks.
        remaining_indices: remaining indices of all ranks, in the order of the epoch.
        indices: indices of this rank since the last iteration began.
        num_samples, total_size: remaining indices of this rank, and of all ranks.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """Create it after init(), with the same arguments on all ranks.

        Args:
            dataset: an object with a length, which is the number of indices.
            shuffle: draw a new order for each epoch; else the order is 0, 1, 2, ...
            seed: seed of that order.
        """
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.indices: list[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Selects an epoch with no indices taken. Call it when an epoch ends, because the begin of
        a loop may be in the middle of an epoch."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that all ranks have taken a batch.

        Args:
            batch_idx: ignored, because batches are recorded in order.
            batch_size: indices of each rank.
        """
        self._record(batch_size)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Records that this rank has taken the next indices, and each other rank the same
        number."""
        self._record(len(indices))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Returns the indices of a batch, counted from the begin of this rank's last iteration."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    @property
    def processed_indices(self) -> set[int]:
        """Indices of this epoch that all ranks together have recorded."""
        return set(self._order()[: self.processed_num])

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a state, also one of another number of ranks."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Shares the remaining indices among the present ranks."""
        self.rank, self.num_replicas = rank(), size()
        self.remaining_indices = self._order()[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        # Some indices occur twice at the end, so all ranks have the same number.
        self.indices = [
            left[at % len(left)] for at in range(self.rank, self.total_size, self.num_replicas)
        ]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples

    def _record(self, count: int) -> None:
        if count < 0:
            raise ArgumentError(f"ElasticSampler: a batch has at least 0 indices, got {count}")
        taken = self.processed_num + count * self.num_replicas
        self.processed_num = min(taken, len(self.dataset))

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(len(self.dataset)))
        return torch.randperm(
            len(self.dataset),
            generator=torch.Generator(device="cpu").manual_seed(self.seed + self.epoch),
            dtype=torch.int64,
            device="cpu",
        ).tolist()
