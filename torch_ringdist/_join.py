"""Lets newcomers into a group (admit), and makes this process a member of a group (join)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from torch_ringdist import _address, _native, _registration
from torch_ringdist._errors import ArgumentError
from torch_ringdist._generation import (
    backend_of_generations,
    checked_timeout,
    connect,
    install_default,
    open_client,
    shared_store,
)

if TYPE_CHECKING:
    from torch_ringdist._options import Options

_USUAL_TIMEOUT = timedelta(minutes=30)  # the default timeout of a group
_ELASTIC = "elastic/"
_RINGDIST = re.compile("ringdist|(cpu|cuda):ringdist(,(cpu|cuda):ringdist)?")


class ElasticJob(str):
    """Name of a job of torch_ringdist.elastic. Only elastic itself admits and joins with such a
    name."""

    __slots__ = ()

    def __new__(cls, name: str) -> ElasticJob:
        return super().__new__(cls, _ELASTIC + name)


@dataclass(frozen=True)
class JoinReport:
    """Describes the generation that join() led to.

    Attributes:
        generation: number of the group's generation, the first with this process.
        joined: the ranks that joined with it, including this process; they are the last ranks.
    """

    generation: int
    joined: tuple[int, ...]


def admit(job: str = "default", max_ranks: int | None = None) -> str:
    """Lets newcomers, which are processes that call join(), into the default group.

    All members call it once, at any time; it does not wait for other ranks. When a newcomer is
    ready, the operations in flight end with an error, as after a loss. All members then call
    shrink(). The group that it returns has the newcomer as its last rank, and report.joined lists
    it. So a training loop that survives losses accepts newcomers too:

        torch_ringdist.admit()
        ...
        except dist.DistNetworkError:
            group, report = torch_ringdist.shrink()

    Later generations of the group admit newcomers without another call.

    Args:
        job: name by which newcomers find the group if several jobs share a store.
        max_ranks: while the group has this many ranks, newcomers wait. No limit if None. All
            members pass the same value.

    Returns:
        "host:port" of the group's TCPStore, or "ringdist://host:port", which newcomers pass to
        join(). It is empty if the group's store is of another kind, which newcomers must open
        themselves.

    Raises:
        ArgumentError: there is no default group, or another backend serves some of its devices.
            Also if its members have not found each other yet, which they have after their first
            operation. Also if the job is one of torch_ringdist.elastic, or max_ranks is below 1.
        NotSupportedError: several of its ranks are in one process.
        TypeError: `job` is not a str, or `max_ranks` is not an int.
        torch.distributed.DistBackendError: rank 0 could not publish the group in the store.
    """
    most = _checked_most(max_ranks)
    backend = backend_of_generations(None, "admit")
    world: Any = dist.group.WORLD
    backend_name, store = c10d._world.pg_map[world]
    backend.admit(_checked_job("admit", job), backend_name, most)
    whole = shared_store(store)
    if isinstance(whole, _native.load().RingdistStore):
        return _address.join_store(whole.host, whole.port, is_own=True)
    return f"{whole.host}:{whole.port}" if isinstance(whole, dist.TCPStore) else ""


def join(
    rendezvous: str | dist.Store,
    timeout: timedelta | None = None,
    options: Options | None = None,
    job: str = "default",
) -> tuple[dist.ProcessGroup, JoinReport]:
    """Makes this process a member of an existing group; replaces init_process_group().

    The group must admit newcomers (admit). It continues undisturbed until this process is ready to
    communicate. Then its members agree on their next generation and call shrink(), and this call
    returns with the same default group. The new group has the timeout of the existing one.

    Args:
        rendezvous: a store, or the address of the group's store as admit() returns it. While the
            first rank 0 lives, that of a TCPStore is MASTER_ADDR:MASTER_PORT.
        timeout: time to wait until the group admits this process; 30 minutes if None.
        options: the Options of init_process_group(pg_options=). Shared options must equal those of
            the group.
        job: the name that the members gave to admit().

    Returns:
        The default group, and a report on its generation.

    Raises:
        torch.distributed.DistBackendError: this process was not admitted in time, with the reason.
            Also if the store failed or does not exist, or if options, costs or the wire version
            differ from the group's. In these cases the members do not notice.
        torch.distributed.DistNetworkError: this process was admitted and then excluded for being
            silent.
        ArgumentError: this process has a default group, or was a member of that group before. Also
            for an invalid rendezvous, a timeout that is not above 0, a job of
            torch_ringdist.elastic, or a group of another backend.
        TypeError: an argument of another type.
    """
    if dist.is_initialized():
        raise ArgumentError(
            "ringdist: join: this process is in a default group already: "
            "call dist.destroy_process_group() first"
        )
    limit = checked_timeout("join", timeout, _USUAL_TIMEOUT)
    _registration.register()
    text = _registration.options_as_text(options, "join: options")
    store = _open(rendezvous, limit)
    joined = _native.load().join_group(
        store, _checked_job("join", job), limit, text, _registration.read_costs
    )
    outcome = joined.next
    try:
        limit, backend_name = outcome.backend.timeout, _checked_backend(joined.note)
        if outcome.store:
            store = connect(outcome.store, limit) or store
        elif _is_served(store):  # our clone; the caller's client keeps its timeout
            store.set_timeout(limit)
        group = install_default(outcome, joined.name, backend_name, store, limit, None)
    except BaseException:
        outcome.backend.abort()  # lets the other members detect the loss
        raise
    return group, JoinReport(outcome.generation, tuple(outcome.joined))


# Returns the job name; raises as admit() and join() do.
def _checked_job(operation: str, job: Any) -> str:
    if not isinstance(job, str):
        raise TypeError(f"ringdist: {operation}: job must be a str, got {type(job).__name__}")
    if job.startswith(_ELASTIC) and not isinstance(job, ElasticJob):
        raise ArgumentError(
            f"ringdist: {operation}: the ranks of job {job!r} train by torch_ringdist.elastic: a "
            "process becomes one of them by elastic.init() and elastic.run"
        )
    return job


# Returns the backend's name in the advertisement of the group. Raises ArgumentError for another
# backend, which torch would load.
def _checked_backend(note: str) -> str:
    if not _RINGDIST.fullmatch(note):
        raise ArgumentError(
            f"ringdist: join: the group is to have the backend {note!r}, and join() makes groups "
            "of ringdist alone: does something else write to the store?"
        )
    return note


# Returns max_ranks as the native module takes it, where 0 means no limit.
def _checked_most(max_ranks: Any) -> int:
    if max_ranks is None:
        return 0
    if not isinstance(max_ranks, int):
        raise TypeError(
            "ringdist: admit: max_ranks must be an int or None, "
            f"got {max_ranks!r} of type {type(max_ranks).__name__}"
        )
    if not 1 <= max_ranks < 1 << 32:
        raise ArgumentError(f"ringdist: admit: max_ranks must be at least 1, got {max_ranks}")
    return max_ranks


# Returns a client of the group's store without prefixes; raises as join() does.
def _open(rendezvous: Any, timeout: timedelta) -> dist.Store:
    if isinstance(rendezvous, dist.Store):
        whole = shared_store(rendezvous)
        # A clone is used because the group sets its timeout on the client.
        # torch's type stubs lack clone().
        return whole.clone() if _is_served(whole) else whole  # type: ignore[attr-defined]
    if not isinstance(rendezvous, str):
        raise TypeError(
            'ringdist: join: rendezvous must be "host:port", "ringdist://host:port" or a '
            f"torch.distributed.Store, got {rendezvous!r} of type {type(rendezvous).__name__}"
        )
    address = _address.parse_store(rendezvous)
    if address is None:
        raise ArgumentError(
            'ringdist: join: rendezvous must be "host:port", "ringdist://host:port" or a store, '
            f"got {rendezvous!r}"
        )
    try:
        return open_client(*address, timeout)
    except dist.DistError as error:
        raise dist.DistBackendError(f"ringdist: join: {error}") from error


# Returns True if a process serves the store, and this object is one of its clients.
def _is_served(store: dist.Store) -> bool:
    return isinstance(store, (dist.TCPStore, _native.load().RingdistStore))
