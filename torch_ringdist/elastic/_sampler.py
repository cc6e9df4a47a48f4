"""Assigns indices of the data to ranks so that each index occurs once per epoch, even if ranks
change."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Sampler as TorchSampler

from torch_ringdist._errors import ArgumentError


class Sampler(TorchSampler[list[int]]):
    """Yields the batches of this rank, for ``DataLoader(data, batch_sampler=state.sampler)``.

    An epoch is one order of all indices, chosen by seed and epoch number, as in DistributedSampler.
    Each step takes the next indices, and the ranks share them. The position in training is one
    number, the indices taken in committed steps. So each index of an epoch is in exactly one
    committed step, even if the number of ranks changes during the epoch.

    Shares of a step differ by at most one index. If there are more ranks than remaining indices, a
    rank without a share gets an index of another rank, with weight 0. ``State.weight`` corrects for
    unequal shares.

    Not thread-safe; the workers of a DataLoader do not use it.
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
        """All ranks pass the same arguments. Exactly one of global_batch and batch_size is given.

        Args:
            data: an object with a length, which is the number of indices.
            global_batch: indices per step of all ranks together, whatever their number.
            batch_size: indices per step and rank.
            shuffle: draw a new order for each epoch; else the order is 0, 1, 2, ...
            seed: seed of that order.
            drop_last: skip the last step of an epoch if it would be smaller.

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
        self._began_at: int | None = None  # `_seen` when the last iteration began
        self._rank, self._size = 0, 1
        self._exhausted = False  # iterated with no steps left, since the last begin()
        self._has_warned = False
        self._epoch_of_state: Callable[[], int] | None = None
        self._kept: tuple[int, torch.Tensor | None] = (-1, None)  # cached order and its epoch

    # Functions for training loops.

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def seen(self) -> int:
        """Number of indices of this epoch in committed steps."""
        return self._seen

    def set_epoch(self, epoch: int) -> None:
        """Selects an epoch, as in DistributedSampler; a new epoch starts with no indices taken. A
        State with an entry `epoch` calls it automatically.

        It warns once if the previous epoch was iterated to its end, but not committed.
        """
        epoch = _count("epoch", epoch, 0)
        if epoch == self._epoch:
            return
        if self._exhausted and self._left and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"ringdist: Sampler: all batches of epoch {self._epoch} were handed out, but "
                f"{self._left} of its steps were not committed: commit(batches=...)",
                stacklevel=3,
            )
        self._move(epoch, 0)

    def __len__(self) -> int:
        """Returns the steps of the last iteration, with the present number of ranks. If nothing was
        iterated in this epoch and generation, returns the remaining steps."""
        self._follow()
        return self._left if self._began_at is None else self._steps_from(self._began_at)

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the batches of this rank after the last committed step.

        Raises:
            ArgumentError: at the first index, if this epoch is over and was iterated before. Also
                if the sampler is not an entry of the State of this training, or if no step of this
                size fits into the data.
        """
        self._follow()
        self._check_use()
        self._began_at = self._seen
        if self._left == 0:
            if self._exhausted:
                raise ArgumentError(
                    f"ringdist: Sampler: epoch {self._epoch} is over, and nothing says that "
                    "another one begins: count state.epoch on, or call set_epoch()"
                )
            self._exhausted = True
            return
        order, at = self._order(), self._seen
        for _ in range(self._left):
            yield self._share(order, at)
            at += self._step
        # A further iteration without a new epoch is a mistake.
        self._exhausted = True

    def indices(self) -> list[int]:
        """Returns the indices of the next step that only this rank takes."""
        self._follow()
        if self._left == 0:
            return []
        first, last = self._bounds(self._seen)
        return self._order()[first:last].tolist()

    # Functions for State.

    def weight(self) -> float:
        """Returns the weight of this rank's next batch; 1 if the epoch is over.

        The rank's mean loss times the weight, averaged over all ranks, is the mean over all indices
        of the step.
        """
        self._follow()
        if self._left == 0:
            return 1.0
        first, last = self._bounds(self._seen)
        return (last - first) * self._size / self._taken(self._seen)

    def advance(self, batches: int) -> None:
        """Marks `batches` steps of the last iterated epoch as trained.

        Raises:
            ArgumentError: the epoch has fewer steps left.
        """
        _count("batches", batches, 0)
        for _ in range(batches):
            if self._left == 0:
                raise ArgumentError(
                    f"ringdist: State.commit: epoch {self._epoch} of the sampler is over; a step "
                    "that takes nothing of it is committed with batches=0"
                )
            self._seen += self._taken(self._seen)

    def begin(self, rank: int, size: int) -> None:
        """Starts a generation. Existing iterators are invalid afterwards."""
        self._rank, self._size = rank, size
        self._move(self._epoch, self._seen)

    # Sets a function that returns the present epoch.
    def follow(self, epoch: Callable[[], int]) -> None:
        self._epoch_of_state = epoch

    def settings(self) -> dict[str, Any]:
        """Returns the settings that all ranks must agree on."""
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
        self._move(epoch, seen)

    # Sets the position. No iteration has begun there.
    def _move(self, epoch: int, seen: int) -> None:
        self._epoch, self._seen, self._began_at, self._exhausted = epoch, seen, None, False

    def _check_use(self) -> None:
        """Raises ArgumentError if the group has another size, or the epoch has no step at all."""
        size = dist.get_world_size() if dist.is_initialized() else self._size
        if size != self._size:
            raise ArgumentError(
                f"ringdist: Sampler: the group has {size} ranks, and this sampler shares its steps "
                f"among {self._size}: it must be an entry of the State that elastic.run trains. "
                "Other groups use torch's DistributedSampler"
            )
        if self._seen == self._left == 0:
            raise ArgumentError(
                f"ringdist: Sampler: a step takes {self._step} indices, and the data has "
                f"{self._length}, so drop_last=True leaves no step with {self._size} ranks: start "
                "fewer (--max-ranks), or give global_batch"
            )

    @property
    def _left(self) -> int:
        """Number of remaining steps."""
        return self._steps_from(self._seen)

    # Returns the number of steps from the position `at` to the end of the epoch.
    def _steps_from(self, at: int) -> int:
        left = self._length - at
        return left // self._step if self._drop_last else -(-left // self._step)

    @property
    def _step(self) -> int:
        return self._batch * self._size if self._per_rank else self._batch

    def _taken(self, at: int) -> int:
        return min(self._step, self._length - at)

    def _bounds(self, at: int) -> tuple[int, int]:
        """Returns the range of this rank's share in the step that begins at `at`."""
        each, more = divmod(self._taken(at), self._size)
        first = at + self._rank * each + min(self._rank, more)
        return first, first + each + (self._rank < more)

    # Returns this rank's indices in the step; the first index of the step if its share is empty.
    def _share(self, order: torch.Tensor, at: int) -> list[int]:
        first, last = self._bounds(at)
        return order[first:last].tolist() or order[at : at + 1].tolist()

    # Returns the order of all indices in this epoch.
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
