"""Process sets: some of the ranks, whose operations the others do not see."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._errors import as_internal


class ProcessSet:
    """Some of the ranks, for operations' process_set=.

    Made by its ranks, it is of use once it was given to init() or add_process_set().

    Attributes:
        process_set_id: the same on all ranks; None before that, and after its removal.
        ranks: global ones, in order.
    """

    __module__ = "torch_ringdist.horovod"

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks: list[int] | None = _checked_ranks(ranks)
        self.process_set_id: int | None = None

    def included(self) -> bool:
        """Whether this process is in it.

        Raises:
            ValueError: not initialized, or the set is not registered.
        """
        me = _global_state.required().me.rank
        return me in self._registered()

    def rank(self) -> int:
        """Of this process in it. Raises: ValueError, it is in it not."""
        return group_of(self, "rank").rank

    def size(self) -> int:
        """Raises: as included()."""
        _global_state.required()
        return len(self._registered())

    def _registered(self) -> list[int]:
        if self.process_set_id is None or self.ranks is None:
            raise ValueError(
                f"{self} is not registered: give it to hvd.init(process_sets=) or "
                "hvd.add_process_set() first"
            )
        return self.ranks

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ProcessSet)
            and self.ranks == other.ranks
            and self.process_set_id == other.process_set_id
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        # A copy of the global one is that of the process where it is.
        return "global_process_set" if self is global_process_set else super().__reduce__()

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _checked_ranks(ranks: Sequence[int]) -> list[int]:
    out = sorted(ranks)
    if not out or len(set(out)) < len(out) or not all(isinstance(rank, int) for rank in out):
        raise ArgumentError(f"a process set needs ranks, each once; got {list(ranks)!r}")
    return out


def _make_global() -> ProcessSet:
    out = ProcessSet([0])
    out.process_set_id, out.ranks = 0, None  # known with init()
    return out


global_process_set = _make_global()

_lock = threading.Lock()
_sets: dict[int, ProcessSet] = {}
_groups: dict[int, _global_state.Group] = {}  # those that this process is in
_next_id = 1


def check(sets: Sequence[ProcessSet], size: int) -> None:
    """Of a job of so many ranks. Raises: ValueError, ranks that are none."""
    for one in sets:
        ranks = _checked_ranks(one.ranks or [])
        if ranks[0] < 0 or ranks[-1] >= size:
            raise ArgumentError(f"a process set's ranks must be 0 to {size - 1}, got {ranks}")


def begin(sets: Sequence[ProcessSet], alike: bool = False) -> None:
    """After init(): the global one, and those; `alike`: one of them may be of all ranks, too."""
    global _next_id
    world = _global_state.required()
    global_process_set.ranks = list(range(world.me.size))
    _sets[0], _groups[0] = global_process_set, world.whole
    _next_id = 1
    for one in sets:
        _add(one) if alike else add_process_set(one)


def take_groups() -> list[_global_state.Group]:
    """The whole one last, for who closes them; nothing can be called any more."""
    with _lock:
        groups = [_groups[number] for number in sorted(_groups, reverse=True)]
        _groups.clear()
        return groups


def end() -> None:
    """All sets are of no use any more."""
    with _lock:
        for one in _sets.values():
            if one is not global_process_set:
                one.process_set_id = None
        global_process_set.ranks = None
        _sets.clear()


def group_of(process_set: ProcessSet, operation: str) -> _global_state.Group:
    """Raises: ValueError, this process is not in it, or the set is not registered."""
    _global_state.required()
    members = process_set._registered()
    group = _groups.get(process_set.process_set_id or 0)
    if group is None:
        raise ValueError(
            f"{operation}: this process, rank {_global_state.required().me.rank}, is not in "
            f"{process_set}, which has ranks {members}"
        )
    return group


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set, or make one of these ranks. All ranks of the job call it alike, those
    that are not in it, too; waits for all.

    Raises:
        ValueError: not initialized; ranks that are none; there is a set of the same ranks; another
            rank gives others.
    """
    world = _global_state.required()
    out = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    check([out], world.me.size)
    ranks = out.ranks or []
    if any(other.ranks == ranks for other in _sets.values()):
        raise ArgumentError(f"add_process_set: there is a process set of ranks {ranks} already")
    return _add(out)


def _add(out: ProcessSet) -> ProcessSet:
    global _next_id
    world, ranks = _global_state.required(), out.ranks or []
    _agree("add_process_set", world, ranks)
    with _lock:
        number, _next_id = _next_id, _next_id + 1
        if world.me.rank in ranks:
            _groups[number] = world.make_group(number, ranks)
        out.process_set_id, out.ranks = number, ranks
        _sets[number] = out
    return out


def _agree(operation: str, world: _global_state.GlobalState, ranks: list[int]) -> None:
    """That all ranks of the job mean the same set; waits for all."""
    own, count = (torch.tensor(x, dtype=torch.int64, device="cpu") for x in (ranks, [len(ranks)]))
    with as_internal():
        with world.whole.calling(operation, None) as name:
            work = world.whole.named.allgather(name, [own, count])
        all_ranks, sizes = work.wait()
    given = [part.tolist() for part in all_ranks.split(sizes.tolist())]
    for rank, theirs in enumerate(given):
        if theirs != ranks:
            raise ArgumentError(
                f"{operation}: rank {world.me.rank} gives ranks {ranks}, rank {rank} gives "
                f"{theirs}: all must give the same"
            )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Take a set out of use, when its operations have ended. All ranks call it alike; waits for
    all. False: it was not registered.

    Raises:
        ValueError: not initialized; it is the global one; another rank gives another.
    """
    world = _global_state.required()
    if process_set.process_set_id == 0:
        raise ArgumentError("remove_process_set: the global process set stays")
    if process_set.process_set_id is None or process_set.process_set_id not in _sets:
        return False
    _agree("remove_process_set", world, process_set.ranks or [])
    with _lock:
        number = process_set.process_set_id
        group = _groups.pop(number, None)
        del _sets[number]
        process_set.process_set_id = None
    if group is not None:
        group.close()
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Of all that are registered. Raises: ValueError, not initialized."""
    _global_state.required()
    with _lock:
        return {number: list(one.ranks or []) for number, one in sorted(_sets.items())}
