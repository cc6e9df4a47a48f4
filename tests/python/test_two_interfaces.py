"""Transport tcp sends over two networks at once if RINGDIST_SOCKET_IFNAME names both."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.pool import Pool, _store
from support.rank import Ranks
from test_networks import LIMIT, PORT, Cables, _arrive
from test_shrink_hosts import net

pytestmark = pytest.mark.hosts

COMMANDS = tuple(f"address add 10.{n}.0.{{n}}/24 dev eth{n}" for n in (0, 1))
SETTINGS = {
    "RINGDIST_TRANSPORT": "shm,tcp",
    "RINGDIST_SOCKET_IFNAME": "eth0,eth1",
}


@pytest.fixture
def cables() -> Iterator[Cables]:
    with Cables(COMMANDS) as made:
        for name in made.names:
            for end in ("eth0", "eth1"):  # slow enough that one network alone is full
                shape = "tbf rate 400mbit burst 128kb latency 20ms"
                net.call("tc", "-n", name, "qdisc", "add", "dev", end, "root", *shape.split())
        yield made


@pytest.fixture
def hosts(cables: Cables, fresh_pool: Callable[..., Pool]) -> Pool:
    enter = functools.partial(_arrive, cables.names, _store().port)
    pool = fresh_pool(2, enter=enter, init=False, environment=SETTINGS)
    pool.run(_begin)
    return pool


def _begin() -> None:
    Ranks.store = dist.TCPStore("10.0.0.1", PORT, is_master=Ranks.rank == 0, wait_for_workers=False)
    dist.init_process_group(
        "ringdist", store=Ranks.store, rank=Ranks.rank, world_size=2, timeout=LIMIT
    )


def _sent(interface: str) -> int:
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def _sum(count: int) -> list[int]:
    """Returns the bytes that this rank has sent over eth0 and eth1."""
    before = [_sent(f"eth{n}") for n in (0, 1)]
    for number in range(count):
        tensor = torch.arange(1 << 20, dtype=torch.float32) + Ranks.rank + number
        dist.all_reduce(tensor)
        expected = 2 * torch.arange(1 << 20, dtype=torch.float32) + 1 + 2 * number
        assert tensor.equal(expected)
    return [_sent(f"eth{n}") - before[n] for n in (0, 1)]


def test_both_carry_a_part(hosts: Pool):
    for first, second in hosts.run(_sum, 8):
        assert min(first, second) > (first + second) / 4


def _is_up(interface: str) -> bool:
    flags = Path(f"/sys/class/net/{interface}/flags").read_text()
    return int(flags, 16) & 1 == 1  # IFF_UP


def _sum_after_a_cut(count: int) -> float:
    """Sums until rank 0's eth1 is down, and then `count` times. Returns the seconds of the longest
    sum."""
    left, longest = torch.tensor([count]), 0.0
    while left:
        begin = time.monotonic()
        _sum(1)
        left -= int(Ranks.rank == 0 and not _is_up("eth1"))
        dist.broadcast(left, 0)
        longest = max(longest, time.monotonic() - begin)
    return longest


def test_one_that_is_cut_costs_its_share_only(hosts: Pool, cables: Cables):
    hosts.run(_sum, 2)
    hosts.start(_sum_after_a_cut, 10)
    time.sleep(1)
    net.call("ip", "-n", cables.names[0], "link", "set", "eth1", "down")
    assert max(hosts.collect().values()) < LIMIT.total_seconds() / 2
    assert all(second == 0 for _, second in hosts.run(_sum, 1))
