"""Newcomers: a group lets them in, and a process becomes a member of a group that is there."""

from __future__ import annotations

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
    open_tcp_store,
    shared_store,
)

if TYPE_CHECKING:
    from torch_ringdist._options import Options

_USUAL_TIMEOUT = timedelta(minutes=30)  # as that of a group
_ELASTIC = "elastic/"


class ElasticJob(str):
    """A job of torch_ringdist.elastic, by name: only elastic itself joins and admits by it."""

    __slots__ = ()

    def __new__(cls, name: str) -> ElasticJob:
        return super().__new__(cls, _ELASTIC + name)


@dataclass(frozen=True)
class JoinReport:
    """What join() led to.

    Attributes:
        generation: of the group, which this one is the first of for this process.
        joined: the ranks that came with it, this process' among them: the last ones.
    """

    generation: int
    joined: tuple[int, ...]


def admit(job: str = "default", max_ranks: int | None = None) -> str:
    """Let newcomers into the default group from now on: processes that call join().

    All members call it, once, at any time; it waits for nobody. When a newcomer has come, the
    operations in flight end with an error, as after a loss, and all members call shrink(): the
    group that this returns has the newcomer as its last rank, and report.joined says so. So a loop
    that survives losses takes newcomers, too.

        torch_ringdist.admit()
        ...
        except dist.DistNetworkError:
            group, report = torch_ringdist.shrink()

    Later generations of the group let newcomers in without another call.

    Args:
        job: by which newcomers name the group, where several jobs have one store.
        max_ranks: newcomers wait while the group has so many ranks. No limit if None. All members
            give the same.

    Returns:
        "host:port" of the group's TCPStore, which newcomers give to join(); empty where its store
        is another one, which they give themselves.

    Raises:
        ArgumentError: there is no default group; it has another backend, for some of its devices
            at least; its members have not found each other yet, which they have after their first
            operation; the job is one of torch_ringdist.elastic; max_ranks is below 1.
        NotSupportedError: several of its ranks are in one process.
        TypeError: job is no str, or max_ranks no int.
        torch.distributed.DistBackendError: the store cannot be written to (rank 0 leaves word of
            the group there).
    """
    most = _checked_most(max_ranks)
    backend = backend_of_generations(None, "admit")
    world: Any = dist.group.WORLD
    backend_name, store = c10d._world.pg_map[world]
    backend.admit(_checked_job("admit", job), backend_name, most)
    whole = shared_store(store)
    return f"{whole.host}:{whole.port}" if isinstance(whole, dist.TCPStore) else ""


def join(
    rendezvous: str | dist.Store,
    timeout: timedelta | None = None,
    options: Options | None = None,
    job: str = "default",
) -> tuple[dist.ProcessGroup, JoinReport]:
    """Become a member of a group that is there, in place of init_process_group().

    The group must let newcomers in (admit). It goes on undisturbed until this process is ready to
    communicate; then its members agree on their next generation and call shrink(), and this one
    returns with the default group that they have. It has the timeout of theirs.

    Args:
        rendezvous: where the group's store is: "host:port" of its TCPStore, as admit() returns it,
            which is MASTER_ADDR:MASTER_PORT while the first rank 0 lives; or a store.
        timeout: how long to wait to be let in; 30 minutes if None.
        options: as in init_process_group(pg_options=); what they share must equal the group's.
        job: as the members gave it to admit().

    Returns:
        The default group, and what the generation is.

    Raises:
        torch.distributed.DistBackendError: not let in in time, and why; the store failed, or is not
            there; options, costs or the version of the wire differ from the group's, which is
            named: then the members do not notice.
        torch.distributed.DistNetworkError: let in, and given up again for being silent.
        ArgumentError: this process has a default group, or was a member of that one before; a
            rendezvous that is none; a timeout that is not above 0; the job is one of
            torch_ringdist.elastic.
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
        limit = outcome.backend.timeout
        if outcome.store:
            store = connect(outcome.store, limit) or store
        elif isinstance(store, dist.TCPStore):  # not the caller's own, which keeps its timeout
            store.set_timeout(limit)
        group = install_default(outcome, joined.name, joined.note, store, limit, None)
    except BaseException:
        outcome.backend.abort()  # the others count on this process
        raise
    return group, JoinReport(outcome.generation, tuple(outcome.joined))


def _checked_job(operation: str, job: Any) -> str:
    if not isinstance(job, str):
        raise TypeError(f"ringdist: {operation}: job must be a str, got {type(job).__name__}")
    if job.startswith(_ELASTIC) and not isinstance(job, ElasticJob):
        raise ArgumentError(
            f"ringdist: {operation}: the ranks of job {job!r} train by torch_ringdist.elastic: a "
            "process becomes one of them by elastic.init() and elastic.run"
        )
    return job


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


def _open(rendezvous: Any, timeout: timedelta) -> dist.Store:
    if isinstance(rendezvous, dist.Store):
        whole = shared_store(rendezvous)
        # A clone, because the group sets its timeout on the client.
        return whole.clone() if isinstance(whole, dist.TCPStore) else whole
    if not isinstance(rendezvous, str):
        raise TypeError(
            'ringdist: join: rendezvous must be "host:port" or a torch.distributed.Store, '
            f"got {rendezvous!r} of type {type(rendezvous).__name__}"
        )
    address = _address.parse(rendezvous)
    if address is None:
        raise ArgumentError(
            f'ringdist: join: rendezvous must be "host:port" or a store, got {rendezvous!r}'
        )
    try:
        return open_tcp_store(address, timeout)
    except dist.DistError as error:
        raise dist.DistBackendError(f"ringdist: join: {error}") from error
