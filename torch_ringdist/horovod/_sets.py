"""Process sets: subsets of the ranks with their own operations."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._errors import as_internal


class ProcessSet:
    """A subset of the ranks, for process_set= of operations.

    It can be used after it was passed to init() or add_process_set().

    Attributes:
        process_set_id: id that is equal on all ranks. It is None before registration and after
            removal.
        ranks: global ranks, in order.
    """

    __module__ = "torch_ringdist.horovod"

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks: list[int] | None = _checked_ranks(ranks)
        self.process_set_id: int | None = None

    def included(self) -> bool:
        """Returns True if this process is in the set.

        Raises:
            ValueError: init() was not called, or the set is not registered.
        """
        me = _global_state.required().me.rank
        return me in self._registered()

    def rank(self) -> int:
        """Returns the rank of this process in the set. Raises ValueError if it is not in it."""
        return group_of(self, "rank").rank

    def size(self) -> int:
        """Returns the number of ranks in the set. Raises as included()."""
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
        # A copy of the global set is the global set of the receiving process.
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
    out.process_set_id, out.ranks = 0, None  # set by init()
    return out


global_process_set = _make_global()

_lock = threading.Lock()
_sets: dict[int, ProcessSet] = {}
_groups: dict[int, _global_state.Group] = {}  # groups with this process
_next_id = 1


def check(sets: Sequence[ProcessSet], size: int) -> None:
    """Checks sets of a job of `size` ranks. Raises ValueError for ranks that do not exist."""
    for one in sets:
        ranks = _checked_ranks(one.ranks or [])
        if ranks[0] < 0 or ranks[-1] >= size:
            raise ArgumentError(f"a process set's ranks must be 0 to {size - 1}, got {ranks}")


def begin(sets: Sequence[ProcessSet], alike: bool = False) -> None:
    """Registers the global set and `sets` after init(). With `alike`, one of them may contain all
    ranks."""
    global _next_id
    world = _global_state.required()
    global_process_set.ranks = list(range(world.me.size))
    _sets[0], _groups[0] = global_process_set, world.whole
    _next_id = 1
    for one in sets:
        _add(one) if alike else add_process_set(one)


def take_groups() -> list[_global_state.Group]:
    """Removes all groups and returns them for closing, the global one last. Later calls fail."""
    with _lock:
        groups = [_groups[number] for number in sorted(_groups, reverse=True)]
        _groups.clear()
        return groups


def end() -> None:
    """Invalidates all sets."""
    with _lock:
        for one in _sets.values():
            if one is not global_process_set:
                one.process_set_id = None
        global_process_set.ranks = None
        _sets.clear()


def group_of(process_set: ProcessSet, operation: str) -> _global_state.Group:
    """Returns the group of the set. Raises ValueError if this process is not in it, or it is not
    registered."""
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
    """Registers a process set, or creates one of these ranks, and returns it.

    All ranks of the job make the same call, including ranks outside of the set. It waits for all of
    them.

    Raises:
        ValueError: init() was not called, ranks do not exist, a set of the same ranks exists, or
            another rank passes other ranks.
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
    """Checks that all ranks of the job pass the same set; waits for all of them."""
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
    """Removes a set after its operations have ended. Returns False if it was not registered.

    All ranks of the job make the same call. It waits for all of them.

    Raises:
        ValueError: init() was not called, the set is the global one, or another rank passes another
            set.
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
    """Returns the ranks of all registered sets by id. Raises ValueError before init()."""
    _global_state.required()
    with _lock:
        return {number: list(one.ranks or []) for number, one in sorted(_sets.items())}
