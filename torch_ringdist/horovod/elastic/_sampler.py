"""Which indices a rank takes, whatever becomes of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._basics import rank, size


class ElasticSampler(Sampler[int]):
    """This rank's share of the indices that no rank has taken in this epoch.

    Where an epoch stands is one number, as the ranks take indices in turn: so all must record the
    same batches. It is to be an entry of a TorchState.

    Attributes:
        dataset, shuffle, seed, epoch: as given.
        processed_num: indices of this epoch that all ranks together have recorded.
        rank, num_replicas: of this process, and how many there are.
        remaining_indices: of all ranks, in the order of the epoch.
        indices: of this rank, since it was last iterated.
        num_samples, total_size: how many indices this rank, and all, will take of this epoch.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """After init(); the same on all ranks.

        Args:
            dataset: what the indices are of; its length counts.
            shuffle: an order drawn for each epoch; else 0, 1, 2, ...
            seed: of that order.
        """
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.indices: list[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Nothing of it is taken yet: so it is called when an epoch ends, not when one begins,
        which may be in its middle."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank and all others have taken a batch.

        Args:
            batch_idx: of Horovod; batches are recorded in order.
            batch_size: of each rank.
        """
        self._record(batch_size)

    def record_indices(self, indices: Sequence[int]) -> None:
        """This rank has taken these, which follow those that are recorded, and each other rank as
        many."""
        self._record(len(indices))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Of that batch, counted from where this rank has last begun to iterate."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    @property
    def processed_indices(self) -> set[int]:
        """Of this epoch, what all ranks together have recorded."""
        return set(self._order()[: self.processed_num])

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """What another one's state_dict() gave, say with another number of ranks."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Share out what is left among the ranks that there are."""
        self.rank, self.num_replicas = rank(), size()
        self.remaining_indices = self._order()[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        # Some come twice in the end, so that all ranks have as many.
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
