"""Continues with the survivors of a group after members were lost, and with newcomers."""

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
    """A process that is no longer a member, with its ranks before the change."""

    rank: int  # rank in the group that was shrunk
    global_rank: int
    cause: str  # "died" (reported by the kernel of its host to a survivor), else "silent"
    where: str  # such as "pid 4711 on host b"


@dataclass(frozen=True)
class ShrinkReport:
    """Describes what shrink() changed.

    Attributes:
        generation: number of changes of the group's members, this one included.
        lost: the processes that are no longer members, by rank.
        stayed: the survivors as previous global ranks, in the order of their new ranks.
        first_unfinished: number, from 1, of the first collective of the old group that at least one
            survivor had not finished. Some survivors may have its result.
        joined: the new ranks of newcomers, which follow those of the survivors.
        store: empty, or the address of the store that replaces the group's lost one, "host:port" or
            with a key "ringdist://host:port". Newcomers use it.

    If a group is shrunk again before all members have returned from the call, late members skip a
    generation. Their report covers all changes since the group that they passed.
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
    """Makes a new group of the survivors after members died or became silent, and of waiting
    newcomers (admit).

    All survivors call it after an operation of the group has raised. It returns when they have
    agreed on the members. A process that was not seen to die has the peer timeout to answer.

        try:
            step(model)
        except dist.DistNetworkError:
            group, report = torch_ringdist.shrink()
            model = DistributedDataParallel(model.module)

    docs/how-to/shrink-and-join.md has the whole loop and the rules on quorums. One thread at a
    time.

    The new group has the ranks 0 to n - 1, in the order of the old ones, and the timeout and
    options of `group`, which is destroyed. If `group` is the default group, the new group becomes
    the default group and its ranks are the new global ranks. In that case, **all other groups are
    destroyed**. They name members by global ranks, which have changed. Otherwise the default group,
    other groups and global ranks stay as they are. Objects built on a destroyed group, such as DDP
    or a DeviceMesh, must be built again.

    Args:
        group: a group of the backend ringdist alone; the default group if None.
        timeout: time limit for the agreement; the group's timeout if None.

    Returns:
        The new group, and a report on what has changed.

    Raises:
        torch.distributed.DistBackendError: no agreement in time ("no quorum: ..."). The
            members are unchanged, `group` stays failed, and the call may be repeated. Also if the
            store does not answer, or if several ranks are in one process.
        torch.distributed.DistNetworkError: the others continued without this process, which cannot
            rejoin them ("excluded in generation ...").
        ArgumentError: a group of another backend, a destroyed group, or one without this rank. Also
            a group with members that never found each other because one died while it formed; the
            message describes what to do. Also a timeout that is not above 0.
        NotSupportedError: a group of one rank that admits no newcomers.
        TypeError: an argument of another type.
    """
    backend = backend_of_generations(group, "shrink")
    old: Any = dist.group.WORLD if group is None else group
    limit = checked_timeout("shrink", timeout, backend.timeout)
    outcome = backend.next_generation(limit)
    try:
        # PyTorch does not track the size of a group that was reconfigured.
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
        outcome.backend.abort()  # lets the other members detect the loss
        raise
    _destroy(ended, old)
    return new, report


def _ended_with(group: dist.ProcessGroup) -> list[dist.ProcessGroup]:
    """Returns the groups that end with `group`, in the same order on all ranks."""
    if group is not dist.group.WORLD:
        return [group]
    names = c10d._world.pg_names
    return sorted(names, key=lambda one: names[one], reverse=True)


def _replace(
    old: dist.ProcessGroup, outcome: NextGeneration, report: ShrinkReport, timeout: timedelta
) -> dist.ProcessGroup:
    """Registers the new group in place of the old one and returns it. If it raises, nothing has
    changed."""
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


# Destroys the groups. Failures to destroy are warnings, because the new group works.
def _destroy(groups: Sequence[dist.ProcessGroup], shrunk: dist.ProcessGroup) -> None:
    for group in groups:
        # Abort instead of waiting: a pending operation may need a rank that waits for this one
        # elsewhere.
        if group is not shrunk:
            with contextlib.suppress(RuntimeError):  # not all backends support it
                group.abort()
    for group in groups:
        try:
            dist.destroy_process_group(group)
        except Exception as error:  # error of another backend; the new group works
            name = group.group_name
            warnings.warn(f"ringdist: shrink: destroying group {name!r}: {error}", stacklevel=3)
