"""Detects changes of a part without a copy of its tensors, for State(copy=False)."""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import torch

from torch_ringdist._errors import ArgumentError
from torch_ringdist.elastic import _checksums
from torch_ringdist.elastic._parts import GuardedPart, Tree


class MutationDetector:
    """Detects changed tensors by their versions, and keeps a copy of all other values.

    Its functions have the contracts of _snapshot.Snapshot.
    """

    def __init__(self, name: str, part: GuardedPart) -> None:
        self._name, self._part = name, part
        self._tensors: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._places: list[int] = []  # memory addresses
        self._memory: list[torch.Tensor] = []  # keeps the memory, so that it is not reused
        self._checksums: list[str] = []  # checksums before the first step of a generation
        self._values: Any = None

    def take(self) -> None:
        self._tensors = self._part.tensors()
        self._mark()
        self._values = self._part.values()
        self._checksums = []

    def begin(self) -> None:
        """Until the next take(), a tensor may be written if its contents end up the same, which the
        checksums show."""
        self._checksums = [_checksums.checksums_of(one) for one in self._tensors]

    def put_back(self) -> None:
        self.check()
        self._mark()  # the contents are as before
        self._part.write_values(self._values)

    def check(self) -> None:
        now = self._part.tensors()
        same = len(now) == len(self._tensors) and all(map(operator.is_, now, self._tensors))
        if not same or not self._part.is_like(self._values):
            self._refuse("what there is")
        marks = zip(self._versions, self._places, strict=True)
        for at, mark in enumerate(marks):
            one = now[at]
            if (one._version, one.data_ptr()) != mark and not self._is_as_it_was(at):
                self._refuse(self._part.name_of(one))

    def _is_as_it_was(self, at: int) -> bool:
        return (
            bool(self._checksums)
            and _checksums.checksums_of(self._tensors[at]) == self._checksums[at]
        )

    def _mark(self) -> None:
        self._versions = [one._version for one in self._tensors]
        places = [one.data_ptr() for one in self._tensors]
        if places != self._places:
            self._places, self._memory = places, [one.detach() for one in self._tensors]

    def tree(self) -> Tree:
        return self._part.read_with(self._values)

    def hashes(self) -> dict[str, str]:
        return _checksums.of_leaves(self.tree())

    def _refuse(self, what: str) -> NoReturn:
        raise ArgumentError(
            f"ringdist: State(copy=False): {what} of {self._name} has changed since the last "
            "commit(), so the step that failed cannot be undone: all collectives of a step must "
            "come before optimizer.step(), or copy=True keep a copy"
        )
