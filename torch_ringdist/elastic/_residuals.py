"""What compression owes: of each rank its own, which outlives the generation that lost it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch_ringdist._compress import CompressState

# As CompressState.state_dict(local=True) has it, with residuals divided by the number of ranks: a
# rank's share of the mean that is owed, so that a change of that number changes none.
Owed = dict[str, Any]


class Residuals:
    """Of the models that are compressed, by the order in which a generation compresses them."""

    def __init__(self) -> None:
        self._handles: list[CompressState] = []
        self._if_committed: list[dict[str, Any]] = []
        self._size = 1
        self._kept: list[dict[str, Any]] = []  # as of the last commit
        self._kept_size = 1
        self._taken: set[str] = set()  # those who have left and handed theirs over

    def begin(self, size: int) -> None:
        """A generation of so many ranks; nothing is compressed in it yet."""
        self._handles, self._if_committed, self._size = [], [], size

    def add(self, handle: CompressState, instead_of: CompressState | None = None) -> None:
        """One of this generation, which goes on from what is owed; or in place of another one of
        it, whose state it has."""
        if instead_of in self._handles:
            self._handles[self._handles.index(instead_of)] = handle
            return
        self._handles.append(handle)
        self._load(len(self._handles) - 1)

    def put_back(self) -> None:
        """Steps of this generation are undone since the last commit, and it goes on."""
        for at in range(len(self._handles)):
            self._load(at)

    def _load(self, at: int) -> None:
        owed, handle = self.owed(), self._handles[at]
        if at < len(owed):
            handle.load_state_dict({**owed[at], "residuals": self._times(owed[at], self._size)})

    def take(self) -> None:
        """What is owed now counts from now on."""
        self._keep([handle.state_dict(local=True) for handle in self._handles])

    def fail(self) -> None:
        """The group has failed in a step, which may have ended well elsewhere: see adopt()."""
        if self._handles:  # else it has failed once more, before another step
            self._if_committed = [handle._committed() for handle in self._handles]
            self._handles = []

    def adopt(self, elsewhere: list[Owed]) -> None:
        """It has: others have committed the step that failed here, with all that this rank had
        sent. `elsewhere`: as without_tensors() of one of them."""
        self._keep(self._if_committed)
        for one, other in zip(self._kept, elsewhere, strict=False):
            one.update(steps=other["steps"], scale=other["scale"])

    def _keep(self, new: list[dict[str, Any]]) -> None:
        if not new:
            return
        if self._kept_size != self._size:
            self._kept = [{**one, "residuals": self._times(one, self._size)} for one in self.owed()]
            self._kept_size = self._size
        self._kept = new + self._kept[len(new) :]

    def owed(self) -> list[Owed]:
        each = 1 / self._kept_size
        return [{**one, "residuals": self._times(one, each)} for one in self._kept]

    def replace(self, owed: list[Owed], among: int = 1) -> None:
        """By an equal share of it."""
        self._kept, self._kept_size = owed, 1
        if among > 1:
            self._kept_size = among
            self._kept = self.owed()
            self._kept_size = 1

    def without_tensors(self) -> list[Owed]:
        """What newcomers begin with: steps and scale, and nothing owed."""
        return [{**one, "residuals": {}} for one in self._kept]

    def hand_over(self) -> tuple[list[Owed], set[str]]:
        """All that is owed here, and by whom it was before."""
        return self.owed(), self._taken

    def receive_all(self, handed: dict[str, tuple[list[Owed], set[str]]]) -> None:
        """From those that leave, by their ids; of each once, however often it tries."""
        # What one of them has taken from another one is part of what it hands over.
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
