"""Hosts are cut off from the others, or lost with all their ranks. The ranks that may continue do
so.

The store is in the process of rank 0, on host 0.
"""

from __future__ import annotations

import contextlib
import functools
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.launched import preloaded
from support.pool import Pool
from support.rank import Raised, caught
from test_shrink import (
    _everything_works,
    _leave,
    _prepare,
    _run,
    _shrink,
    _sum_is_right,
    _until_an_error,
)

import torch_ringdist
from torch_ringdist._shrink import Lost, ShrinkReport

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.net import hosts as net  # noqa: E402

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone"),
]

SIZE = 4
PEER_TIMEOUT = 5.0
AGREEMENT_LIMIT = timedelta(seconds=6)  # for ranks that cannot reach agreement


class Network(net.Hosts):
    """Hosts with cables that can be pulled, or plugged into another switch."""

    def pull(self, host: int) -> None:
        self._port(host, "down")

    def part(self, *hosts: int) -> None:
        """Lets these hosts reach each other, and no others."""
        other = ("ip", "-n", self.switch, "link")
        net.call(*other, "add", "other", "type", "bridge")
        net.call(*other, "set", "other", "addrgenmode", "none", "up")
        for host in hosts:
            self._port(host, "master", "other")

    def deafen(self, host: int) -> None:
        """Drops packets to the host, but not packets from it."""
        net.call("tc", "-n", self.switch, *self._queue("replace", f"port{host}"), "blackhole")

    def add_address(self, host: int, interface: str, address: str) -> None:
        """Adds an address on an interface that leads nowhere. Others have no route to it."""
        link = ("ip", "-n", self._names[host], "link")
        net.call(*link, "add", interface, "type", "veth", "peer", "name", "nowhere")
        for one in (interface, "nowhere"):
            net.call(*link, "set", one, "up")
        net.call("ip", "-n", self._names[host], "address", "add", address, "dev", interface)

    def silence(self, host: int) -> None:
        """Drops packets from the host, but not packets to it."""
        net.call("tc", "-n", self._names[host], *self._queue("replace", net.INTERFACE), "blackhole")

    def heal(self) -> None:
        for host, name in enumerate(self._names):
            self._port(host, "master", "bridge", "up")
            for end in ((self.switch, f"port{host}"), (name, net.INTERFACE)):
                with contextlib.suppress(net.CommandError):  # nothing was dropped there
                    net.call("tc", "-n", end[0], *self._queue("del", end[1]))
        self._wait_for_carrier()

    def _port(self, host: int, *change: str) -> None:
        net.call("ip", "-n", self.switch, "link", "set", f"port{host}", *change)

    def _queue(self, change: str, interface: str) -> tuple[str, ...]:
        return ("qdisc", change, "dev", interface, "root")


def _enter(namespaces: Sequence[str], rank: int) -> None:
    preloaded.enter(namespaces[rank])


Start = Callable[..., tuple[Network, Pool]]


@pytest.fixture
def start(fresh_pool: Callable[..., Pool]) -> Iterator[Start]:
    """Returns start(hosts): a network of hosts, and a pool with equally many ranks on each. With
    forms=False they have no group yet."""
    with contextlib.ExitStack() as stack:  # leaving it kills processes that still run there

        def make(
            hosts: int, peer_timeout: float = PEER_TIMEOUT, forms: bool = True, size: int = SIZE
        ) -> tuple[Network, Pool]:
            network = stack.enter_context(Network(hosts))
            namespaces = [network.enter(rank * hosts // size)[-1] for rank in range(size)]
            pool = fresh_pool(
                size,
                rank0_hosts_store=True,
                store_address=network.address(0),
                enter=functools.partial(_enter, namespaces),
                environment={"RINGDIST_PEER_TIMEOUT": str(peer_timeout)},
                init=forms,
            )
            if forms:
                pool.run(_prepare)
            return network, pool

        yield make


@dataclass(frozen=True)
class Outcome:
    """Result of a rank. Times are from time.monotonic()."""

    error: Raised  # error of an operation
    refused: Raised | None = None  # error of shrink()
    report: ShrinkReport | None = None
    shrunk_at: float = 0
    done_at: float = 0  # time of the first operation of the new group

    def told(self, begin: float) -> str:
        moments = {"error": self.error.at, "shrink()": self.shrunk_at, "operation": self.done_at}
        times = (f"{what} {at - begin:.2f} s" for what, at in moments.items() if at)
        what = (self.error, self.refused, self.report)
        return "\n  ".join([", ".join(times), *(str(one) for one in what if one)])


def _go_on_or_not(quorum: set[int]) -> Outcome:
    error, _ = _until_an_error()
    if dist.get_rank() not in quorum:
        world = dist.group.WORLD
        refused = caught(torch_ringdist.shrink, timeout=AGREEMENT_LIMIT)
        assert dist.group.WORLD is world and dist.get_world_size() == SIZE
        return Outcome(error, refused)
    report = _shrink()
    shrunk_at = time.monotonic()
    _sum_is_right()
    done_at = time.monotonic()
    _everything_works()
    return Outcome(error, None, report, shrunk_at, done_at)


def _after(
    fault: Callable[[], object],
    pool: Pool,
    quorum: set[int],
    dead: tuple[int, ...] = (),
    how: str = "silent",
) -> None:
    """Injects the fault. Ranks of the quorum continue without all others, which are lost in the
    given way. Other live ranks must report that they cannot continue."""
    pool.start(_go_on_or_not, quorum)
    time.sleep(0.7)
    begin = time.monotonic()
    fault()
    outcomes = pool.collect(without=dead)
    for rank, one in outcomes.items():
        print(f"rank {rank} after the fault: {one.told(begin)}")
    for rank, one in outcomes.items():
        assert "DistNetworkError" in one.error.kinds, f"rank {rank}: {one.error}"
        if rank in quorum:
            assert one.report == outcomes[min(quorum)].report
            _went_on(one.report, quorum, how)
        else:
            _could_not(one.refused, SIZE - len(quorum) - len(dead))


def _went_on(report: ShrinkReport | None, quorum: set[int], how: str) -> None:
    assert report is not None
    assert report.generation == 1
    assert report.stayed == tuple(sorted(quorum))
    lost = {one.rank: one for one in report.lost}
    assert set(lost) == set(range(SIZE)) - quorum, report
    for rank, one in lost.items():
        assert one == Lost(rank, rank, how, one.where)


def _could_not(refused: Raised | None, reached: int) -> None:
    assert refused is not None and "DistBackendError" in refused.kinds, refused
    # Only a proposer has the number of voters.
    said = re.search(rf"no quorum: (\d) of {SIZE} voters, 3 needed; rank \d ", refused.text)
    assert said and 1 <= int(said[1]) <= reached, refused


def _shrink_again() -> Raised | None:
    return caught(torch_ringdist.shrink, timeout=timedelta(seconds=30))


def _healed(network: Network, pool: Pool, quorum: set[int]) -> None:
    """Heals the network. Ranks that were cut off learn of their exclusion; the others are not
    disturbed."""
    network.heal()
    for rank, error in _run(pool, set(range(SIZE)) - quorum, _shrink_again).items():
        assert error is not None and "DistNetworkError" in error.kinds, f"rank {rank}: {error}"
        assert "excluded in generation 1" in error.text, f"rank {rank}: {error}"
    _run(pool, quorum, _everything_works)


def _end_well(pool: Pool, dead: tuple[int, ...] = ()) -> None:
    """Ends the living ranks by themselves. No rank waits for lost ones."""
    living = set(range(SIZE)) - set(dead)
    _run(pool, living, _leave)
    pool.close()
    assert {rank: pool.processes[rank].exitcode for rank in living} == dict.fromkeys(living, 0)


@pytest.mark.parametrize("host", [3, 0])
def test_one_host_is_cut_off(start: Start, host: int):
    network, pool = start(hosts=4)
    quorum = set(range(SIZE)) - {host}  # host 0 has the store, so they use another
    _after(lambda: network.pull(host), pool, quorum)
    _healed(network, pool, quorum)
    _end_well(pool)


def test_half_of_the_hosts_go_on_with_the_store(start: Start):
    network, pool = start(hosts=4)
    _after(lambda: network.part(2, 3), pool, {0, 1})
    _healed(network, pool, {0, 1})
    _end_well(pool)


def _lose(network: Network, host: int, pool: Pool, ranks: tuple[int, ...]) -> None:
    network.pull(host)  # first, so that no other host gets a notice of their end
    for rank in ranks:
        pool.kill(rank)


def test_the_host_of_the_store_is_lost(start: Start):
    network, pool = start(hosts=4)
    _after(lambda: _lose(network, 0, pool, (0,)), pool, {1, 2, 3}, dead=(0,))
    _end_well(pool, dead=(0,))


@pytest.mark.parametrize(("host", "ranks"), [(1, (2, 3)), (0, (0, 1))])
def test_one_of_two_hosts_is_lost(start: Start, host: int, ranks: tuple[int, int]):
    network, pool = start(hosts=2)
    quorum = {0, 1} if host == 1 else set()  # half, so they need the store
    _after(lambda: _lose(network, host, pool, ranks), pool, quorum, dead=ranks)
    _end_well(pool, dead=ranks)


def test_one_that_speaks_for_its_host_dies_and_the_host_stays(start: Start):
    """The other rank of its host has had no link to rank 0 for longer than a host may be silent."""
    _, pool = start(hosts=2)
    time.sleep(PEER_TIMEOUT + 1)
    _after(lambda: pool.kill(2), pool, {0, 1, 3}, dead=(2,), how="died")
    _end_well(pool, dead=(2,))


def test_all_ranks_of_a_host_die_at_once(start: Start):
    """The network of the host stays up and refuses connections. Only the first two ranks had a
    link to another host. No rank waits for the silence timeout."""
    _, pool = start(hosts=2, size=6, peer_timeout=100)
    staying, dying = (0, 1, 2), (3, 4, 5)
    pool.start(_go_on_or_not, set(staying))
    time.sleep(0.7)
    begin = time.monotonic()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none learns of the end of another
        for rank in dying:
            pool.kill(rank, number)
    for rank, one in pool.collect(without=dying).items():
        print(f"rank {rank} after the deaths: {one.told(begin)}")
        assert one.report is not None and one.report.stayed == staying
        assert tuple(lost.rank for lost in one.report.lost) == dying
    _run(pool, set(staying), _leave)


CUTS: dict[str, Callable[[Network, int], None]] = {
    "both ways": Network.pull,
    "what it hears": Network.deafen,
    "what it says": Network.silence,
}


def _sum_for(seconds: float) -> tuple[int, float]:
    """Sums for this time by rank 0's clock. Returns the number of sums and the longest time of
    one."""
    end, done, longest = time.monotonic() + seconds, 0, 0.0
    while True:
        begin = time.monotonic()
        tensor = torch.zeros(1 << 18)
        tensor[0] = dist.get_rank() == 0 and begin < end
        dist.all_reduce(tensor)
        done, longest = done + 1, max(longest, time.monotonic() - begin)
        if tensor[0] == 0:
            return done, longest


def _nobody_is_lost(start: Start, cut: str, host: int, seconds: float, peer_timeout: float) -> None:
    network, pool = start(hosts=4, peer_timeout=peer_timeout)
    pool.start(_sum_for, seconds + 2.5)
    time.sleep(0.7)
    CUTS[cut](network, host)
    time.sleep(seconds)
    network.heal()
    for rank, (sums, longest) in pool.collect().items():
        print(f"rank {rank}: {sums} sums, the longest took {longest:.2f} s")
    pool.run(_everything_works)
    _end_well(pool)


@pytest.mark.parametrize("host", [2, 0])
@pytest.mark.parametrize("cut", CUTS)
def test_nobody_is_lost_by_a_short_cut(start: Start, cut: str, host: int):
    _nobody_is_lost(start, cut, host, seconds=1.5, peer_timeout=15)


def test_nobody_is_lost_by_a_cut_that_ends_in_time(start: Start):
    _nobody_is_lost(start, "both ways", 3, seconds=7, peer_timeout=20)
