"""Residuals of each rank, kept across generations of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch_ringdist._compress import CompressState

# A state of CompressState.state_dict(local=True) with residuals divided by the number of ranks.
# This is the rank's share of the mean, so it stays valid if that number changes.
Owed = dict[str, Any]


class Residuals:
    """Residuals of all compressed models, in the order in which a generation compresses them.

    Steps change the residuals of the handles. The kept ones are those of the last commit.
    """

    def __init__(self) -> None:
        self._handles: list[CompressState] = []
        self._if_committed: list[dict[str, Any]] = []
        self._size = 1
        self.has_begun = False  # a generation, with residuals as shares of the mean
        self._kept: list[dict[str, Any]] = []  # residuals of the last commit
        self._kept_size = 1
        self._taken: set[str] = set()  # ids of ranks that left and handed over their residuals

    def begin(self, size: int) -> None:
        """Starts a generation of `size` ranks without compressed models."""
        self.has_begun = True
        self._handles, self._if_committed, self._size = [], [], size

    def add(self, handle: CompressState, instead_of: CompressState | None = None) -> None:
        """Adds a compressed model, which continues with the kept residuals. If `instead_of` is
        given, the new handle replaces that one and already has its state."""
        if instead_of in self._handles:
            self._handles[self._handles.index(instead_of)] = handle
            return
        self._handles.append(handle)
        self._load(len(self._handles) - 1)

    def put_back(self) -> None:
        """Undoes steps since the last commit, within the same generation."""
        for at in range(len(self._handles)):
            self._load(at)

    # Loads the kept residuals of the model at position `at` into its handle.
    def _load(self, at: int) -> None:
        owed, handle = self.owed(), self._handles[at]
        if at < len(owed):
            handle.load_state_dict({**owed[at], "residuals": self._times(owed[at], self._size)})

    def take(self) -> None:
        """Keeps the present residuals; called at a commit."""
        self._keep([handle.state_dict(local=True) for handle in self._handles])

    def fail(self) -> None:
        """Records that the group failed during a step. Another rank may have finished that step:
        see adopt()."""
        if self._handles:  # otherwise it failed again before another step
            self._if_committed = [handle._committed() for handle in self._handles]
            self._handles = []

    def adopt(self, elsewhere: list[Owed]) -> None:
        """Keeps the residuals of the failed step, because other ranks have committed it.

        All data that this rank sent in that step has arrived. `elsewhere` is the without_tensors()
        of such a rank.
        """
        self._keep(self._if_committed)
        for one, other in zip(self._kept, elsewhere, strict=False):
            one.update(steps=other["steps"], scale=other["scale"])

    # Replaces the first kept states by `new`, which have the present group size.
    def _keep(self, new: list[dict[str, Any]]) -> None:
        if not new:
            return
        if self._kept_size != self._size:
            self._kept = [{**one, "residuals": self._times(one, self._size)} for one in self.owed()]
            self._kept_size = self._size
        self._kept = new + self._kept[len(new) :]

    # Returns the kept states with this rank's shares of the mean.
    def owed(self) -> list[Owed]:
        each = 1 / self._kept_size
        return [{**one, "residuals": self._times(one, each)} for one in self._kept]

    def replace(self, owed: list[Owed], among: int = 1) -> None:
        """Replaces the kept states by an equal share of `owed` among `among` ranks."""
        self._kept, self._kept_size = owed, 1
        if among > 1:
            self._kept_size = among
            self._kept = self.owed()
            self._kept_size = 1

    def without_tensors(self) -> list[Owed]:
        """Returns the states for newcomers: steps and scale, without residuals."""
        return [{**one, "residuals": {}} for one in self._kept]

    def hand_over(self) -> tuple[list[Owed], set[str]]:
        """Returns this rank's shares, and the ids of the ranks that it took shares from."""
        return self.owed(), self._taken

    def receive_all(self, handed: dict[str, tuple[list[Owed], set[str]]]) -> None:
        """Adds the shares of leaving ranks, by their ids. A repeated call adds each rank only
        once."""
        # Shares that one of them took from another are part of what it hands over.
        within = self._taken.union(*(taken for _, taken in handed.values()))
        for whose, (owed, taken) in handed.items():
            if whose not in within:
                self._receive(owed)
            self._taken |= {whose, *taken}

    def _receive(self, owed: list[Owed]) -> None:
        mine = self.owed()
        mine += [{**one, "residuals": {}} for one in owed[len(mine) :]]
        for one, other in zip(mine, owed, strict=False):
            for name, share in other["residuals"].items():
                have = one["residuals"].get(name)
                one["residuals"][name] = share.clone() if have is None else have + share
        self.replace(mine)

    @staticmethod
    def _times(one: dict[str, Any], factor: float) -> dict[str, torch.Tensor]:
        return {name: share * factor for name, share in one["residuals"].items()}
