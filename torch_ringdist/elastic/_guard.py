"""What a part was at one moment, of which no copy is kept: State(copy=False)."""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import torch

from torch_ringdist._errors import ArgumentError
from torch_ringdist.elastic import _sums
from torch_ringdist.elastic._parts import GuardedPart, Tree


class Guard:
    """Of its tensors it knows the versions, and so whether they have changed since; it has a copy
    of the rest. For what its functions promise: _snapshot.Snapshot."""

    def __init__(self, name: str, part: GuardedPart) -> None:
        self._name, self._part = name, part
        self._tensors: list[torch.Tensor] = []
        self._marks: list[tuple[int, int]] = []  # of each its version, and where it is
        self._sums: list[str] = []  # before the first step of a generation
        self._values: Any = None

    def take(self) -> None:
        self._tensors = self._part.tensors()
        self._marks = _marks_of(self._tensors)
        self._values = self._part.values()
        self._sums = []

    def begin(self) -> None:
        """Until the next take() a tensor may be written to, if it ends as it was."""
        self._sums = [_sums.sums_of(one) for one in self._tensors]

    def put_back(self) -> None:
        self.check()
        self._marks = _marks_of(self._tensors)  # as they were, in the end
        self._part.write_values(self._values)

    def check(self) -> None:
        now = self._part.tensors()
        if len(now) != len(self._tensors) or not all(map(operator.is_, now, self._tensors)):
            self._refuse("what there is")
        for at, (mark, before) in enumerate(zip(_marks_of(now), self._marks, strict=True)):
            if mark != before and not (self._sums and _sums.sums_of(now[at]) == self._sums[at]):
                self._refuse(self._part.name_of(now[at]))

    def tree(self) -> Tree:
        return self._part.read_with(self._values)

    def hashes(self) -> dict[str, str]:
        return _sums.of_leaves(self.tree())

    def _refuse(self, what: str) -> NoReturn:
        raise ArgumentError(
            f"ringdist: State(copy=False): {what} of {self._name} has changed since the last "
            "commit(), so the step that failed cannot be undone: all collectives of a step must "
            "come before optimizer.step(), or copy=True keep a copy"
        )


def _marks_of(tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
    return [(one._version, one.data_ptr()) for one in tensors]
