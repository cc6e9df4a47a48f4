"""Two hosts with different network set-ups. Where gloo creates a group, ringdist must do so,
too."""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.pool import Pool, _store
from support.rank import Ranks, caught
from test_shrink_hosts import _enter, net

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone"),
]

PORT = 29511  # rank 0's store; the hosts have no other service
LIMIT = timedelta(seconds=30)
MS_BIND = 0x1000

PLAIN = ("address add 10.9.0.{n}/24 dev eth0",)
# Each host has this default route on its own network.
ELSEWHERE = (
    "link add name else0 type veth peer name else1",
    "address add 10.2{n}.0.1/24 dev else0",
    "link set else0 up",
    "link set else1 up",
    "route add default via 10.2{n}.0.9",
)
SECOND = ("address add 10.8.0.{n}/24 dev eth1",)


@dataclass(frozen=True)
class SetUp:
    """The `ip` commands on each host, where {n} is 1 or 2, and each rank's address of rank 0's
    store. There is one pair of addresses for each group that the two create. `local` is the
    store of a first group of one rank."""

    commands: tuple[str, ...]
    stores: tuple[tuple[str, str], ...]
    local: str = ""
    interface: str = "eth0"  # for gloo, which would use the host's name
    transport: str = ""
    refused: str = ""  # the error message, if `transport` cannot work


SETUPS = {
    "a group in a HashStore came first": SetUp(PLAIN, (("10.9.0.1",) * 2,), local="hash"),
    "a group at 127.0.0.1 came first": SetUp(PLAIN, (("10.9.0.1",) * 2,), local="127.0.0.1"),
    "rank 0 has localhost": SetUp(PLAIN, (("localhost", "10.9.0.1"),)),
    "rank 0 has localhost, the default route leads elsewhere": SetUp(
        PLAIN + ELSEWHERE, (("localhost", "10.9.0.1"),)
    ),
    "rank 0 has its own name, at 127.0.1.1": SetUp(PLAIN, (("rdhost1", "10.9.0.1"),)),
    "the same, the default route leads elsewhere": SetUp(
        PLAIN + ELSEWHERE, (("rdhost1", "10.9.0.1"),)
    ),
    "a file, no default route": SetUp(PLAIN, (("file", "file"),)),
    "a bridge": SetUp(
        (
            "link add br0 type bridge",
            "link set eth0 master br0",
            "link set br0 up",
            "address add 10.9.0.{n}/24 dev br0",
        ),
        (("10.9.0.1",) * 2,),
        interface="br0",
    ),
    "an address with a label": SetUp(
        (*PLAIN, "address add 10.7.0.{n}/24 dev eth0 label eth0:1"),
        (("10.7.0.1",) * 2,),
        interface="eth0:1",
    ),
    "two networks, one after the other": SetUp(
        PLAIN + SECOND, (("10.9.0.1",) * 2, ("10.8.0.1",) * 2, ("10.9.0.1",) * 2)
    ),
    "IPv6": SetUp(("address add fd00::{n}/64 dev eth0 nodad",), (("fd00::1",) * 2,)),
    "IPv4 as IPv6": SetUp(PLAIN, (("::ffff:10.9.0.1",) * 2,)),
    "no address but one with a label": SetUp(
        ("address add 10.7.0.{n}/24 dev eth0 label eth0:1",),
        (("10.7.0.1",) * 2,),
        interface="eth0:1",
    ),
    "the same, for UCX": SetUp(
        ("address add 10.7.0.{n}/24 dev eth0 label eth0:1",),
        (("10.7.0.1",) * 2,),
        interface="eth0:1",
        transport="ucx",
        refused="none with a label",
    ),
    "a cable, IPv4": SetUp(("address add 169.254.3.{n}/16 dev eth0",), (("169.254.3.1",) * 2,)),
    "a cable, IPv6": SetUp(("address add fe80::{n}/64 dev eth0 nodad",), (("fe80::1%eth0",) * 2,)),
    "a cable at interfaces of different names, IPv6": SetUp(
        (
            "link set eth0 down",
            "link set eth0 name port{n}",
            "link set port{n} up",
            "address add fe80::{n}/64 dev port{n} nodad",
        ),
        (("fe80::1%port1", "fe80::1%port2"),),
        interface="port{n}",
    ),
    "a cable, IPv4, for UCX": SetUp(
        ("address add 169.254.3.{n}/16 dev eth0",),
        (("169.254.3.1",) * 2,),
        transport="ucx",
        refused="no link-local address",
    ),
}


class Cables:
    """Two hosts on two cables, eth0 and eth1, without addresses."""

    def __init__(self, commands: tuple[str, ...]) -> None:
        self.names = [f"{net.PREFIX}-{os.getpid()}-n{n}" for n in (1, 2)]
        self._commands = commands

    def __enter__(self) -> Cables:
        net.remove_leftovers()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        for name in self.names:
            net.call("ip", "netns", "add", name)
            net.call("ip", "-n", name, "link", "set", "lo", "up")
        for end in ("eth0", "eth1"):
            ends = ("type", "veth", "peer", "name", end, "netns", self.names[1])
            net.call("ip", "-n", self.names[0], "link", "add", "name", end, *ends)
            for name in self.names:
                net.call("ip", "-n", name, "link", "set", end, "addrgenmode", "none", "up")
        for n, name in enumerate(self.names, 1):
            for command in self._commands:
                net.call("ip", "-n", name, *command.format(n=n).split())

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            net._remove(name)


def _arrive(names: list[str], port: int, rank: int) -> None:
    """Enters the rank's host, where /etc/hosts has the host's name as Debian writes it. Other
    names do not resolve, which fails at once."""
    _enter(names, rank)
    libc = ctypes.CDLL(None, use_errno=True)
    for path, text in (
        ("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 rdhost{rank + 1}\n"),
        ("/etc/resolv.conf", "nameserver 127.0.0.1\n"),
    ):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            words = file.name.encode(), path.encode(), None, ctypes.c_ulong(MS_BIND), None
            assert not libc.mount(*words), path
    # The pool's ranks look for a store first.
    _arrive.store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)


def _one_group(backend: str, store: dist.Store, size: int = 2) -> None:
    rank = Ranks.rank if size > 1 else 0
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LIMIT)
    try:
        tensor = torch.full((1000,), Ranks.rank + 1.0)
        dist.all_reduce(tensor)
        assert tensor.eq(3.0 if size > 1 else Ranks.rank + 1.0).all()
    finally:
        dist.destroy_process_group()


def _meet(setup: SetUp, path: str) -> tuple[list[str | None], list[str | None]]:
    """Returns the errors of ringdist and of gloo for each group."""
    if setup.local:
        local = (
            dist.HashStore()
            if setup.local == "hash"
            else dist.TCPStore(setup.local, 0, is_master=True, wait_for_workers=False)
        )
        _one_group("ringdist", local, size=1)
    os.environ["GLOO_SOCKET_IFNAME"] = setup.interface.format(n=Ranks.rank + 1)
    os.environ["RINGDIST_TRANSPORT"] = setup.transport
    outcomes: tuple[list[str | None], list[str | None]] = ([], [])
    Ranks.stores = []  # rank 1 may need rank 0's a little longer
    for number, addresses in enumerate(setup.stores):
        address = addresses[Ranks.rank]
        store = (
            dist.FileStore(path, 2)
            if address == "file"
            else dist.TCPStore(
                address, PORT + number, is_master=Ranks.rank == 0, wait_for_workers=False
            )
        )
        Ranks.stores.append(store)
        for backend, out in zip(("ringdist", "gloo"), outcomes, strict=True):
            raised = caught(_one_group, backend, dist.PrefixStore(f"{backend} {number}", store))
            out.append(str(raised) if raised else None)
    return outcomes


@pytest.fixture
def hosts(fresh_pool: Callable[..., Pool], request: pytest.FixtureRequest) -> Iterator[Pool]:
    with Cables(request.param) as cables:
        enter = functools.partial(_arrive, cables.names, _store().port)
        yield fresh_pool(2, enter=enter, init=False)


@pytest.mark.parametrize(
    ("hosts", "setup"),
    [pytest.param(one.commands, one, id=name) for name, one in SETUPS.items()],
    indirect=["hosts"],
)
def test_hosts_meet(hosts: Pool, setup: SetUp, tmp_path: Path):
    outcomes = hosts.run(_meet, setup, str(tmp_path / "store"), timeout=110.0)
    for ours, gloo in outcomes:
        print("ringdist:", ours, "\ngloo:", gloo)
    if setup.refused:
        assert all(setup.refused in str(ours[0]) for ours, _ in outcomes), outcomes
    else:
        assert not any(text for ours, _ in outcomes for text in ours), outcomes
