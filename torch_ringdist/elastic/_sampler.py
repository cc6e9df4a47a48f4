"""Which indices a rank takes in each step: all of an epoch once, whatever becomes of the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch.utils.data import Sampler as TorchSampler

from torch_ringdist._errors import ArgumentError


class Sampler(TorchSampler[list[int]]):
    """The batches of this rank, for ``DataLoader(data, batch_sampler=state.sampler)``.

    An epoch is one order of all indices, by seed and number of the epoch, as DistributedSampler's.
    Each step takes the next of them, and the ranks share these out; where training stands is one
    number, how many were taken in committed steps. So each index of an epoch is in exactly one
    committed step, also where the number of ranks changes in the middle of it.

    Shares of a step differ by one at most. Where there are more ranks than indices left, a rank
    without a share gets an index that another one has, with weight 0. ``State.weight`` makes up for
    unequal shares.

    Not thread-safe; a DataLoader's workers do not touch it.
    """

    def __init__(
        self,
        data: Sized,
        global_batch: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        """All ranks give the same.

        Args:
            data: what the indices are of; its length counts.
            global_batch: indices per step, of all ranks together, however many they are.
            batch_size: indices per step and rank; either this or global_batch.
            shuffle: an order drawn for each epoch; else 0, 1, 2, ...
            seed: of that order.
            drop_last: leave out the last step of an epoch where it would be smaller.

        Raises:
            TypeError: an argument of another type.
            ArgumentError: a value that is not accepted.
        """
        self._length = _length_of(data)
        if (global_batch is None) == (batch_size is None):
            raise ArgumentError(
                "ringdist: Sampler: give either global_batch (of all ranks together) or batch_size "
                f"(of each), got global_batch={global_batch!r} and batch_size={batch_size!r}"
            )
        name = "global_batch" if batch_size is None else "batch_size"
        self._batch = _count(name, global_batch if batch_size is None else batch_size, 1)
        self._per_rank = batch_size is not None
        self._shuffle, self._drop_last = bool(shuffle), bool(drop_last)
        self._seed = _count("seed", seed, 0)
        self._epoch = self._seen = 0
        self._rank, self._size = 0, 1
        self._exhausted = False  # was iterated when nothing was left, since it last began anew
        self._epoch_of_state: Callable[[], int] | None = None
        self._kept: tuple[int, torch.Tensor | None] = (-1, None)  # an epoch, and its order

    # What a training loop uses.

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def seen(self) -> int:
        """Indices of this epoch that are in committed steps."""
        return self._seen

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler's; of another epoch nothing is taken yet. A State that has `epoch`
        does it by itself."""
        epoch = _count("epoch", epoch, 0)
        if epoch != self._epoch:
            self._epoch, self._seen, self._exhausted = epoch, 0, False

    def __len__(self) -> int:
        """Steps that are left of this epoch, with as many ranks as now."""
        self._follow()
        return self._left

    def __iter__(self) -> Iterator[list[int]]:
        """From what is committed on.

        Raises:
            ArgumentError: at the first index, if this epoch is over, and was before.
        """
        self._follow()
        if len(self) == 0:
            if self._exhausted:
                raise ArgumentError(
                    f"ringdist: Sampler: epoch {self._epoch} is over, and nothing says that "
                    "another one begins: count state.epoch on, or call set_epoch()"
                )
            self._exhausted = True
            return
        order, at = self._order(), self._seen
        for _ in range(len(self)):
            yield self._share(order, at)
            at += self._step
        # Whoever iterates again without another epoch has forgotten it.
        self._exhausted = True

    def indices(self) -> list[int]:
        """Of the next step, those that this rank takes and no other."""
        if len(self) == 0:
            return []
        first, last = self._bounds(self._seen)
        return self._order()[first:last].tolist()

    # What State uses.

    def weight(self) -> float:
        """Of this rank's next batch: its mean loss times this, averaged over all ranks, is the mean
        over all indices of the step. 1 where the epoch is over."""
        if len(self) == 0:
            return 1.0
        first, last = self._bounds(self._seen)
        return (last - first) * self._size / self._taken(self._seen)

    def advance(self, batches: int) -> None:
        """So many have been trained on, of the epoch that was iterated last."""
        _count("batches", batches, 0)
        for _ in range(batches):
            if self._left == 0:
                raise ArgumentError(
                    f"ringdist: State.commit: epoch {self._epoch} of the sampler is over; a step "
                    "that takes nothing of it is committed with batches=0"
                )
            self._seen += self._taken(self._seen)

    def begin(self, rank: int, size: int) -> None:
        """A generation: iterators that are there already are of no use any more."""
        self._rank, self._size, self._exhausted = rank, size, False

    def follow(self, epoch: Callable[[], int]) -> None:
        self._epoch_of_state = epoch

    def settings(self) -> dict[str, Any]:
        """What all ranks have to agree on."""
        return {
            "length of data": self._length,
            "batch_size" if self._per_rank else "global_batch": self._batch,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "drop_last": self._drop_last,
        }

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        epoch, seen = _count("epoch", state["epoch"], 0), _count("seen", state["seen"], 0)
        if seen > self._length:
            raise ArgumentError(
                f"ringdist: Sampler: load_state_dict: {seen} indices were taken, of data that has "
                f"{self._length}"
            )
        self._epoch, self._seen, self._exhausted = epoch, seen, False

    @property
    def _left(self) -> int:
        """Steps."""
        left = self._length - self._seen
        return left // self._step if self._drop_last else -(-left // self._step)

    @property
    def _step(self) -> int:
        return self._batch * self._size if self._per_rank else self._batch

    def _taken(self, at: int) -> int:
        return min(self._step, self._length - at)

    def _bounds(self, at: int) -> tuple[int, int]:
        """Of this rank's share of the step that begins there."""
        each, more = divmod(self._taken(at), self._size)
        first = at + self._rank * each + min(self._rank, more)
        return first, first + each + (self._rank < more)

    def _share(self, order: torch.Tensor, at: int) -> list[int]:
        first, last = self._bounds(at)
        return order[first:last].tolist() or order[at : at + 1].tolist()

    def _order(self) -> torch.Tensor:
        epoch, order = self._kept
        if order is None or epoch != self._epoch:
            order = torch.arange(self._length, dtype=torch.int64, device="cpu")
            if self._shuffle:
                seed = self._seed + self._epoch
                order = torch.randperm(
                    self._length,
                    generator=torch.Generator(device="cpu").manual_seed(seed),
                    dtype=torch.int64,
                    device="cpu",
                )
            self._kept = (self._epoch, order)
        return order

    def _follow(self) -> None:
        if self._epoch_of_state is not None:
            self.set_epoch(self._epoch_of_state())


def _length_of(data: Any) -> int:
    try:
        length = len(data)
    except TypeError:
        raise TypeError(
            "ringdist: Sampler: data must have a length, as a map-style data set, "
            f"got {type(data).__name__}"
        ) from None
    if length == 0:
        raise ArgumentError("ringdist: Sampler: data is empty")
    return length


def _count(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(
            f"ringdist: Sampler: {name} must be a whole number, "
            f"got {value!r} of type {type(value).__name__}"
        )
    if value < least:
        raise ArgumentError(f"ringdist: Sampler: {name} must be {least} or more, got {value}")
    return value
