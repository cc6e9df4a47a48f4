"""Starts stores that listen at one address, and opens those of ringdist:// addresses."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch.distributed as dist

from torch_ringdist import _native
from torch_ringdist._credentials import has_key, tls_files
from torch_ringdist._errors import ArgumentError
from torch_ringdist._rendezvous import STORE_OF_RANKS, query

if TYPE_CHECKING:
    from torch_ringdist._C import RingdistStore

_ALL = frozenset({"", "0.0.0.0", "::"})  # hosts that mean all addresses
_LOCAL = "localhost"
_OPENING = timedelta(seconds=60)
_BACKLOG = 4096  # ranks that dial at once
USUAL_TIMEOUT = timedelta(minutes=30)  # default of PyTorch's groups


def serve(host: str, port: int, **named: Any) -> dist.TCPStore:
    """Returns a TCPStore that listens at the address of `host` alone. PyTorch's listens at all.

    It warns and listens at all addresses if `host` is no address of this machine, as behind NAT.
    The same holds for a name that is a loopback address here, as in Debian's /etc/hosts.

    Args:
        host: a name or an address of this machine.
        port: the port, or 0 for a free one.
        named: further arguments of TCPStore.

    Raises:
        torch.distributed.DistError: TCPStore raises it, for instance if the port is in use.
    """
    listener = _listener(host, port)
    if listener is not None:
        named["master_listen_fd"] = listener.detach()  # the store closes it
    return dist.TCPStore(host, port, is_master=True, **named)


def _listener(host: str, port: int) -> socket.socket | None:
    """Returns a socket that listens at the address; None if the store has to make its own."""
    if host in _ALL:
        return None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return None  # the store reports it
    addresses = [str(one[4][0]) for one in found]
    if host not in (_LOCAL, *addresses) and all(map(_is_loopback, addresses)):
        warn_of_all_addresses(f"{host} is {addresses[0]} here, which other hosts do not reach")
        return None
    if host not in (_LOCAL, *addresses):  # /etc/hosts may have the own name at 127.0.0.1, too
        found = [one for one in found if not _is_loopback(str(one[4][0]))]
    # IPv4 first, because clients try all addresses of a name, but some have one that was written
    # down.
    for family, _, _, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        try:
            # Dual-stack, for IPv4 addresses that are written as IPv6.
            dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            return socket.create_server(
                address, family=family, dualstack_ipv6=dual, backlog=_BACKLOG
            )
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                return None  # perhaps torch has a store there; or the store reports it
    warn_of_all_addresses(f"{host} is no address of this host")
    return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def warn_of_all_addresses(why: str) -> None:
    """Warns that a store listens at all addresses, because of `why`."""
    warnings.warn(
        f"ringdist: the store listens at all addresses of this host, because {why}. Give an "
        "address of the network of the job",
        stacklevel=4,
    )


def serve_for_job(host: str, port: int) -> dist.TCPStore | RingdistStore:
    """Serves the store of a job: one of ringdist's own if has_key(), else a TCPStore. Raises as
    open_own() and serve()."""
    if has_key():
        return open_own(host, port, serves=True, timeout=_OPENING)
    return serve(host, port, wait_for_workers=False)


def open_or_serve(
    host: str, port: int, serves: bool, timeout: timedelta = _OPENING
) -> tuple[RingdistStore, bool]:
    """Opens a store of ringdist's own. If `serves` is True and nobody listens there, serves it.

    Returns:
        The store, and True if this process serves it.

    Raises:
        As open_own().
    """
    if serves:
        try:
            return open_own(host, port, serves=True, timeout=timeout), True
        except dist.DistNetworkError as error:
            if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
                raise
    return open_own(host, port, serves=False, timeout=timeout), False


def rendezvous(
    url: str, timeout: timedelta = USUAL_TIMEOUT, **_: Any
) -> Iterator[tuple[dist.Store, int, int]]:
    """Yields store, rank and world size for ``init_method="ringdist://HOST:PORT"``, once.

    Rank 0 serves the store at HOST:PORT. Rank and world size come from init_process_group(), or
    else from RANK and WORLD_SIZE.

    Raises:
        ArgumentError: the address, the rank or the world size is missing or invalid.
        torch.distributed.DistNetworkError: rank 0 cannot listen there, or nothing answers within
            `timeout`.
        torch.distributed.DistBackendError: ranks have different keys.
    """
    host, port = _place(url)
    return _once(url, lambda rank: open_own(host, port, serves=rank == 0, timeout=timeout))


def of_ranks(
    address: str, url: str, timeout: timedelta = USUAL_TIMEOUT, **_: Any
) -> Iterator[tuple[dist.Store, int, int]]:
    """Yields store, rank and world size for ``init_method="env://"`` where launchers serve the
    store, once.

    Args:
        address: ``ringdist://HOST:PORT?prefix=NAME``; keys of the ranks begin with NAME.
        url: the init method, which may have rank and world size.

    Raises:
        As rendezvous().
    """
    return _once(url, lambda _: open_of_ranks(address, timeout))


def with_key(
    url: str, timeout: timedelta = USUAL_TIMEOUT, **_: Any
) -> Iterator[tuple[dist.Store, int, int]]:
    """Yields store, rank and world size for ``env://`` and ``tcp://HOST:PORT`` of a process with a
    key, once. Rank 0 serves a store of ringdist's own there, in place of a TCPStore.

    Raises:
        ArgumentError: MASTER_ADDR or MASTER_PORT is missing. Also as rendezvous() and
            open_with_key().
    """
    if url.startswith("env:"):
        host, number = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        if not host or not number.isdecimal() or not 0 < int(number) < 1 << 16:
            raise ArgumentError(
                "ringdist: env://: MASTER_ADDR and MASTER_PORT must be the address of rank 0 and "
                f"its port, from 1 to 65535, got {host!r} and {number!r}"
            )
        port = int(number)
    else:
        host, port = _place(url)
    return _once(url, lambda rank: open_with_key(host, port, rank, timeout))


# Yields the store that `opened` returns for a rank, the rank, and the world size.
def _once(url: str, opened: Callable[[int], dist.Store]) -> Iterator[tuple[dist.Store, int, int]]:
    rank, size = _rank_and_size(url)
    yield opened(rank), rank, size
    raise RuntimeError(f"ringdist: {url}: a process can create its group by this address once")


def open_with_key(host: str, port: int, rank: int, timeout: timedelta) -> RingdistStore:
    """Opens the store of the ranks of a job with a key, and serves it in rank 0.

    Raises:
        ArgumentError: a launcher serves a store there, which is a TCPStore. Also as open_own().
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address = os.environ.get(STORE_OF_RANKS)
        raise ArgumentError(
            f"ringdist: the launcher has a TCPStore at {host}:{port}, which does not encrypt its "
            "connections, and this process has a key: "
            + (
                "leave MASTER_ADDR and MASTER_PORT as the launcher has set them, "
                f"{query(address).get('master')}"
                if address
                else "start torchrun with --rdzv-backend=ringdist --rdzv-endpoint=HOST:PORT"
            )
        )
    serves = rank == 0 and not _native.load().RingdistStore.serves(port)  # a second group
    return open_own(host, port, serves=serves, timeout=timeout)


def open_of_ranks(address: str, timeout: timedelta) -> dist.Store:
    """Opens the store of of_ranks(). Raises as open_own() does."""
    host, port = _place(address)
    store = open_own(host, port, serves=False, timeout=timeout)
    return dist.PrefixStore(query(address)["prefix"], store)


def open_own(host: str, port: int, serves: bool, timeout: timedelta) -> RingdistStore:
    """Opens a store of ringdist://HOST:PORT, and serves it if `serves` is True.

    Raises:
        torch.distributed.DistNetworkError: this process cannot listen there, or nothing answers
            within `timeout`.
        torch.distributed.DistBackendError: the store has another key, or this process has none.
        ArgumentError: the key or certificate of this process is bad.
    """
    make, listener = _native.load().RingdistStore, -1
    if serves:
        try:
            dual = socket.has_dualstack_ipv6()  # not where the kernel has no IPv6
            made = _listener(host, port) or socket.create_server(
                ("", port),
                family=socket.AF_INET6 if dual else socket.AF_INET,
                dualstack_ipv6=dual,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise dist.DistNetworkError(
                f"ringdist: the store cannot be served at {host}:{port} ({error}): choose a free "
                "port, and for torchrun another one than MASTER_PORT"
            ) from error
        listener = made.detach()
    return make(host, port, listener, timeout, tls_files())


# Returns host and port of a ringdist:// address; raises as rendezvous() does.
def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # the port is no number
        host = port = None
    if not host or port is None or parts.path.strip("/"):
        scheme = url.partition(":")[0]
        raise ArgumentError(f"ringdist: expected {scheme}://HOST:PORT, got {url!r}")
    return host, port


def _rank_and_size(url: str) -> tuple[int, int]:
    given = query(url)
    rank = _number("rank", given.get("rank"), "RANK")
    size = _number("world_size", given.get("world_size"), "WORLD_SIZE")
    if not 0 <= rank < size:
        raise ArgumentError(f"ringdist: {url}: rank must be in 0..{size - 1}, got {rank}")
    return rank, size


def _number(name: str, given: str | None, variable: str) -> int:
    text = given if given is not None else os.environ.get(variable)
    if text is None or not text.isdecimal():
        raise ArgumentError(
            f"ringdist: {name} must be given to init_process_group() or by "
            f"{variable}, a number from 0; got {text!r}"
        )
    return int(text)
