"""Starts stores that listen at one address."""

from __future__ import annotations

import errno
import ipaddress
import socket
import warnings
from typing import Any

import torch.distributed as dist

_ALL = frozenset({"", "0.0.0.0", "::"})  # hosts that mean all addresses
_LOCAL = "localhost"


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
        _warn(f"{host} is {addresses[0]} here, which other hosts do not reach")
        return None
    if host not in (_LOCAL, *addresses):  # /etc/hosts may have the own name at 127.0.0.1, too
        found = [one for one in found if not _is_loopback(str(one[4][0]))]
    # IPv4 first, because clients try all addresses of a name, but some have one that was written
    # down.
    for family, _, _, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        try:
            # Dual-stack, for IPv4 addresses that are written as IPv6.
            dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            return socket.create_server(address, family=family, dualstack_ipv6=dual)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                return None  # perhaps torch has a store there; or the store reports it
    _warn(f"{host} is no address of this host")
    return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _warn(why: str) -> None:
    warnings.warn(
        f"ringdist: the store listens at all addresses of this host, because {why}. Give an "
        "address of the network of the job",
        stacklevel=4,
    )
