"""Global state between init() and shutdown(): the groups of this process."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from torch_ringdist import _native, _registration
from torch_ringdist._credentials import has_key
from torch_ringdist._generation import open_client
from torch_ringdist._rendezvous import store_of_ranks
from torch_ringdist._served_store import open_of_ranks, open_with_key, serve
from torch_ringdist._units import LONGEST
from torch_ringdist.horovod._errors import as_internal
from torch_ringdist.horovod._launch_info import LaunchInfo, is_elastic, launched, number_of

if TYPE_CHECKING:
    from torch_ringdist._C import NamedGroup, ProcessGroupRing
    from torch_ringdist.elastic._residuals import Residuals

TIMEOUT = timedelta(minutes=30)


def _options() -> dict[str, str]:
    """Returns options that make sums independent of fusion, by adding in rank order. If
    RINGDIST_ALGORITHM forces an algorithm, which may not support that, there are none."""
    return {} if os.environ.get("RINGDIST_ALGORITHM") else {"deterministic": "layout"}


def _limits() -> dict[str, Any]:
    """Returns the arguments of NamedGroup that Horovod's variables set."""
    out = {}
    for variable, name, least in (
        ("HOROVOD_FUSION_THRESHOLD", "fusion_bytes", 0),
        ("HOROVOD_CACHE_CAPACITY", "cache_capacity", 1),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "warn_after", 0),
    ):
        value = number_of(os.environ, variable)
        if value is not None:
            out[name] = max(value, least)
    if number_of(os.environ, "HOROVOD_STALL_CHECK_DISABLE"):
        out["warn_after"] = 0
    return out


# Returns the timeout that a variable sets, or 30 minutes. `zero` is the timeout for 0.
def _timeout(variable: str, zero: timedelta = TIMEOUT) -> timedelta:
    seconds = number_of(os.environ, variable)
    if seconds is None:
        return TIMEOUT
    return timedelta(seconds=min(seconds, LONGEST.total_seconds())) if seconds else zero


# Warns about HOROVOD_* variables that have no effect.
def _say_what_is_not_obeyed() -> None:
    obeyed: tuple[str, ...] = ("RANK", "SIZE", "FUSION_THRESHOLD", "CACHE_CAPACITY")
    obeyed += ("START_TIMEOUT", "ELASTIC")
    obeyed += ("STALL_CHECK_TIME_SECONDS", "STALL_CHECK_DISABLE", "STALL_SHUTDOWN_TIME_SECONDS")
    obeyed += ("TIMELINE", "TIMELINE_MARK_CYCLES", "ELASTIC_TIMEOUT", "AUTOTUNE", "AUTOTUNE_LOG")
    others = sorted(
        name for name in os.environ if name.startswith("HOROVOD_") and not name.endswith(obeyed)
    )
    if others:
        warnings.warn(
            f"ringdist: horovod.init(): no effect here: {', '.join(others)}; "
            "docs/reference/horovod.md has what there is",
            stacklevel=4,
        )


@dataclass
class Group:
    """Group of one process set, on a rank that is in it.

    Attributes:
        named: matches operations by name.
        backend: the ringdist backend.
        members: global ranks, in order.
        coded: groups for compressed gradients by name, each with its own order of operations.
        counts: number of calls without a name, by operation.
        joins: how often all ranks have joined. Each join restarts the counts.
        lock: protects the counts.
    """

    named: NamedGroup
    backend: ProcessGroupRing
    members: list[int]
    joins: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    coded: dict[str, ProcessGroupRing] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return self.backend.rank()

    @property
    def size(self) -> int:
        return len(self.members)

    def calling(self, operation: str, name: str | None) -> AbstractContextManager[str]:
        """Returns a context manager with the name of a call; the call is made inside.

        Without a given name it is, for instance, "allreduce.noname.0.3". The count is the same on
        all ranks that make the same calls. A call that raises is not counted.
        """
        return self._counted(operation) if name is None else nullcontext(name)

    @contextmanager
    def _counted(self, operation: str) -> Iterator[str]:
        with self.lock:
            number = self.counts.get(operation, 0)
            yield f"{operation}.noname.{self.joins}.{number}"
            self.counts[operation] = number + 1

    def close(self) -> None:
        """Waits for the operations in flight and leaves the group."""
        for backend in self.coded.values():
            backend.shutdown()
        self.named.close()

    # Restarts the counts after all ranks have joined.
    def joined(self) -> None:
        self.joins += 1
        self.counts.clear()


@dataclass(frozen=True)
class HostTopology:
    """Position of a rank among hosts."""

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    homogeneous: bool  # all hosts have the same number of ranks
    hosts: int = 1


class GlobalState:
    """All groups between init() and shutdown()."""

    def __init__(self, me: LaunchInfo, store: dist.Store) -> None:
        self.me = me
        self.store = store
        self.whole = self.make_group(0, list(range(me.size)))
        try:
            _await_ranks(me, store)
            self.where = _find_place(me, self.whole)
        except BaseException:
            self.whole.close()
            raise
        self.timeline: Path | None = None  # file of the timeline that rank 0 has started
        self.residuals: Residuals | None = None  # residuals of an elastic job

    def make_group(self, number: int, members: Sequence[int]) -> Group:
        """Creates a group of those ranks, which include this one. All of them make the same call.
        The other ranks are found in the background."""
        backend = self._make_backend(str(number), members, _options())
        with as_internal():
            named = _native.load().NamedGroup(backend, **_limits())
        return Group(named, backend, list(members))

    def add_coded(
        self, process_set: int, group: Group, parameters: Iterable[str]
    ) -> ProcessGroupRing:
        """Adds a group for compressed gradients to `group`. All members make the same call, in any
        order if the names of the parameters differ from those of other such groups."""
        digest = hashlib.sha256("\0".join(sorted(parameters)).encode()).hexdigest()[:12]
        names = (f"{process_set}/coded-{digest}-{number}" for number in itertools.count())
        name = next(one for one in names if one not in group.coded)
        group.coded[name] = self._make_backend(name, group.members, {})
        return group.coded[name]

    def _make_backend(
        self, name: str, members: Sequence[int], options: dict[str, str]
    ) -> ProcessGroupRing:
        with as_internal():
            return _native.load().create_backend(
                dist.PrefixStore(f"set{name}", self.store),
                list(members).index(self.me.rank),
                len(members),
                _timeout("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", zero=LONGEST),
                f"horovod:{name}",
                list(members),
                options,
                _registration.read_costs,
            )


def _host_of_this_process() -> bytes:
    """Returns an id that is equal for processes that share memory and network interfaces."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    place = f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    return hashlib.sha256(place.encode()).digest()


# Waits until all ranks have come, at most HOROVOD_START_TIMEOUT.
def _await_ranks(me: LaunchInfo, store: dist.Store) -> None:
    store.set(f"here/{me.rank}", "")
    keys = [f"here/{rank}" for rank in range(me.size)]
    store.wait(keys, _timeout("HOROVOD_START_TIMEOUT"))


def _find_place(me: LaunchInfo, group: Group) -> HostTopology:
    """Returns the position of this rank from the host ids of all ranks. Waits for all of them.

    The ids travel in the group, because other processes may write to the store.
    """
    if me.size == 1:
        return HostTopology(me.local_rank or 0, me.local_size or 1, 0, 1, homogeneous=True)
    mine = torch.tensor([list(_host_of_this_process())], dtype=torch.uint8, device="cpu")
    with as_internal():
        [ids] = group.named.allgather("horovod.init", [mine]).wait()
    hosts = [bytes(row) for row in ids.tolist()]
    local = [rank for rank in range(me.size) if hosts[rank] == hosts[me.rank]]
    local_rank = local.index(me.rank)
    # Hosts that have a rank with this local rank.
    in_order = list(dict.fromkeys(hosts))
    with_as_many = [host for host in in_order if hosts.count(host) > local_rank]
    return HostTopology(
        local_rank,
        len(local),
        with_as_many.index(hosts[me.rank]),
        len(with_as_many),
        homogeneous=len({hosts.count(host) for host in in_order}) == 1,
        hosts=len(in_order),
    )


_lock = threading.RLock()
_world: GlobalState | None = None
_inits = itertools.count()
# Kept until the process ends, because other ranks may still use a store that this one created.
_stores: dict[tuple[int, str, int, int], dist.Store] = {}


def begin_generation(rank: int, size: int) -> None:
    """Creates the state for a generation of torch's default group. Call it once per generation,
    after end()."""
    global _world
    with _lock:
        me = replace(launched(), rank=rank, size=size)
        _world = GlobalState(me, dist.PrefixStore("horovod", _store(me)))


def begin() -> GlobalState:
    """Returns the state, and creates it if there is none."""
    global _world
    with _lock:
        if _world is None:
            me = launched()
            _say_what_is_not_obeyed()
            # A launcher's store outlives the ranks that it restarts.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store = dist.PrefixStore(f"horovod/{attempt}/{next(_inits)}", _store(me))
            _world = GlobalState(me, store)
        return _world


def end() -> GlobalState | None:
    """Removes the state and returns it; the caller closes its groups."""
    global _world
    with _lock:
        world, _world = _world, None
        return world


def current() -> GlobalState | None:
    return _world


def required() -> GlobalState:
    """Returns the state. Raises ValueError if there is none."""
    if _world is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _world


# Returns a store for a job of one rank.
def _store_of_one(me: LaunchInfo) -> dist.Store:
    if dist.is_initialized() or not is_elastic():
        return dist.HashStore()
    # This connection later determines the address at which others find this rank.
    store = open_client(me.address, me.port, me.has_own_store, _timeout("HOROVOD_START_TIMEOUT"))
    return dist.PrefixStore(f"horovod/alone/{uuid.uuid4().hex}", store)


# Returns the store of the job. Rank 0 hosts it unless the launcher does.
def _store(me: LaunchInfo) -> dist.Store:
    if me.size == 1:
        return _store_of_one(me)
    if dist.is_initialized() and dist.get_world_size() == me.size:
        return c10d._get_default_store()
    where = os.getpid(), me.address, me.port, me.size  # a forked child needs its own
    if where in _stores:
        return _stores[where]
    timeout = _timeout("HOROVOD_START_TIMEOUT")
    if address := store_of_ranks():
        _stores[where] = open_of_ranks(address, timeout)
        return _stores[where]
    if has_key():
        _stores[where] = open_with_key(me.address, me.port, me.rank, timeout)
        return _stores[where]
    # The launcher's store is used if there is one, as in torch. Otherwise rank 0 hosts a store that
    # a later init_process_group() may share.
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    open_it: Any = serve if me.rank == 0 and not of_launcher else dist.TCPStore
    made: Any = open_it(me.address, me.port, world_size=me.size, timeout=timeout, multi_tenant=True)
    _stores[where] = made
    return made
