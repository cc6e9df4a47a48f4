"""Going on without the members that a group has lost, and with those that have come."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from torch_ringdist._generation import (
    backend_of_generations,
    checked_timeout,
    connect,
    install_default,
    name_of,
)
from torch_ringdist._registration import Successor

if TYPE_CHECKING:
    from torch_ringdist._C import NextGeneration


@dataclass(frozen=True)
class Lost:
    """A process that is no member any more; its ranks are those that it had."""

    rank: int  # in the group that was shrunk
    global_rank: int
    cause: str  # "died", as the kernel of its host reported; "silent": nothing was heard of it
    where: str  # "pid 4711 on host b"


@dataclass(frozen=True)
class ShrinkReport:
    """What shrink() changed.

    Attributes:
        generation: how often the group's members have changed, this time included.
        lost: who is no member any more, by rank.
        stayed: who is, as global ranks from before, in the order of the new ranks.
        first_unfinished: the number, from 1, of the first collective of the old group that not all
            who stayed had finished: some of them may have its result, and others not.
        joined: the new ranks of newcomers, which follow those of the others.
        store: empty, or "host:port" of the store that the group uses from now on, as the one that
            it had was lost. Newcomers find it there.

    Where a group is shrunk again before all of its members have come back from the call, those that
    are late skip a generation: their report is of all that has changed since the group they gave.
    """

    generation: int
    lost: tuple[Lost, ...]
    stayed: tuple[int, ...]
    first_unfinished: int
    joined: tuple[int, ...] = ()
    store: str = ""


def shrink(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None
) -> tuple[dist.ProcessGroup, ShrinkReport]:
    """Make a group of those members that are left, after others have died or fallen silent, and
    of newcomers that wait (admit).

    All who live call it, each when an operation of the group has raised. It returns when they have
    agreed on who they are; whom nobody saw die they give the peer timeout to answer.

        try:
            step(model)
        except dist.DistNetworkError:
            group, report = torch_ringdist.shrink()
            model = DistributedDataParallel(model.module)

    docs/membership.md has the whole loop, and says who may decide.

    The new group has the ranks 0 to n - 1, in the order of the old ones, and the timeout and the
    options of `group`, which is destroyed. In place of the default group it is the default group,
    its ranks are the new global ranks, and **all other groups are destroyed**, as they name their
    members by global ranks that have changed. Otherwise the default group, other groups and global
    ranks stay as they are. What was built on a group that is gone, such as DDP or a DeviceMesh, is
    to be built anew.

    Args:
        group: of the backend ringdist alone; the default group if None.
        timeout: how long to look for an agreement; the group's timeout if None.

    Returns:
        The new group, and what has changed.

    Raises:
        torch.distributed.DistBackendError: no agreement in time ("no quorum: ..."). `group` is as
            it was; the call may be repeated.
        torch.distributed.DistNetworkError: the others went on without this process, which can be
            no member of theirs any more ("excluded in generation ...").
        ArgumentError: a group of another backend, one that was destroyed, of which this rank is no
            member, or whose members never found each other, as one died while it formed (the error
            says what to do); a timeout that is not above 0.
        NotSupportedError: a group of one rank that takes no newcomers.
        TypeError: an argument of another type.

    One thread at a time.
    """
    backend = backend_of_generations(group, "shrink")
    old: Any = dist.group.WORLD if group is None else group
    limit = checked_timeout("shrink", timeout, backend.timeout)
    outcome = backend.next_generation(limit)
    try:
        # PyTorch does not know how many a group has that was reconfigured.
        is_default = old is dist.group.WORLD
        members = list(range(backend.size())) if is_default else dist.get_process_group_ranks(old)
        report = ShrinkReport(
            generation=outcome.generation,
            lost=tuple(Lost(rank, members[rank], *why) for rank, *why in outcome.lost),
            stayed=tuple(members[rank] for rank in outcome.stayed),
            first_unfinished=outcome.first_unfinished,
            joined=tuple(outcome.joined),
            store=outcome.store,
        )
        ended = _ended_with(old)
        new = _replace(old, outcome, report, backend.timeout)
    except BaseException:
        outcome.backend.abort()  # the others count on this process
        raise
    _destroy(ended, old)
    return new, report


def _ended_with(group: dist.ProcessGroup) -> list[dist.ProcessGroup]:
    """Those that go when the group does, in the same order on all ranks."""
    if group is not dist.group.WORLD:
        return [group]
    names = c10d._world.pg_names
    return sorted(names, key=lambda one: names[one], reverse=True)


def _replace(
    old: dist.ProcessGroup, outcome: NextGeneration, report: ShrinkReport, timeout: timedelta
) -> dist.ProcessGroup:
    """The new group, known to torch.distributed in place of the old one. Else nothing changes."""
    world = c10d._world
    name, backend_name, store = world.pg_names[old], *world.pg_map[old]
    if outcome.store:
        store = connect(outcome.store, timeout) or store
    if old is dist.group.WORLD:
        return install_default(outcome, name, backend_name, store, timeout, old.bound_device_id)
    new: Any
    new, _ = c10d._new_process_group_helper(
        len(report.stayed),
        outcome.backend.rank(),
        list(report.stayed),
        backend_name,
        store,
        name_of(name, outcome.generation),
        backend_options=Successor(outcome.backend),
        timeout=timeout,
        device_id=old.bound_device_id,
        group_desc=old.group_desc,
    )
    world.pg_group_ranks[new] = {rank: at for at, rank in enumerate(report.stayed)}
    return new


def _destroy(groups: Sequence[dist.ProcessGroup], shrunk: dist.ProcessGroup) -> None:
    for group in groups:
        # To wait for what is in flight may mean to wait for one that waits for us elsewhere.
        if group is not shrunk:
            with contextlib.suppress(RuntimeError):  # not all backends can
                group.abort()
    for group in groups:
        try:
            dist.destroy_process_group(group)
        except Exception as error:  # another backend's; the new group is there, and good
            name = group.group_name
            warnings.warn(f"ringdist: shrink: destroying group {name!r}: {error}", stacklevel=3)
