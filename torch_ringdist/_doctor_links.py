"""Checks of the links between hosts for ``ringdist doctor``: ports, sizes of packets and speed."""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass

from torch_ringdist import _native

_CONNECT = 3.0  # seconds
_ANSWER = 3.0
_LARGE = 256 << 10  # bytes, far more than a packet holds
_TOKEN = 16  # bytes of the token of an EchoServer
_MOST_CONNECTIONS = 512  # open connections of an EchoServer
# Addresses for examples (RFC 5737, RFC 3849). What leads to them is the default route.
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
_TRIES = 5


class EchoServer:
    """Sends back what comes over each connection that begins with its token."""

    def __init__(self, variable: str = "", ports: str = "") -> None:
        """Listens at the first free port of `ports`, such as "47000-47999", which a variable has,
        or at any. Raises OSError if none is free."""
        self.token = secrets.token_hex(_TOKEN // 2)
        self._socket = _listen(variable, ports)
        self.port: int = self._socket.getsockname()[1]
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):  # close()
                    return
                time.sleep(0.1)  # no descriptor is free
                continue
            if not self._free.acquire(blocking=False):
                peer.close()
                continue
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), peer:
            peer.settimeout(_ANSWER)
            if hmac.compare_digest(_read(peer, _TOKEN), self.token.encode()):
                peer.settimeout(60)
                while data := peer.recv(1 << 20):
                    peer.sendall(data)
        self._free.release()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._socket.close()


def _listen(variable: str, ports: str) -> socket.socket:
    first, _, last = ports.partition("-")
    problem = OSError(errno.EADDRINUSE, "no port")
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    for port in range(int(first or 0), int(last or first or 0) + 1):
        try:
            return socket.create_server(("", port), family=family, dualstack_ipv6=both)
        except OverflowError:  # there is no such port
            break
        except OSError as error:
            problem = error
    raise OSError(problem.errno, f"{variable}={ports}: {os.strerror(problem.errno or 0)}")


@dataclass(frozen=True)
class Probe:
    """Result of a probe of another host.

    Attributes:
        failure: "" if all went well; else "dropped" (no answer to the connection), "refused",
            "closed" (something else listens there), "large" (small messages arrive, but no large
            ones) or another text.
        latency: seconds of the fastest round trip.
        rate: bytes per second in each direction, or 0 if it was not measured.
    """

    failure: str = ""
    latency: float = 0.0
    rate: float = 0.0


def probe(address: str, port: int, token: str, megabytes: int = 0) -> Probe:
    """Sends messages to an EchoServer and waits for their echo; `megabytes` of them to measure the
    rate."""
    try:
        peer = socket.create_connection((address, port), timeout=_CONNECT)
    except TimeoutError:
        return Probe("dropped")
    except ConnectionRefusedError:
        return Probe("refused")
    except OSError as error:
        return Probe(error.strerror or str(error))
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(_ANSWER)
        try:
            peer.sendall(token.encode())
            latency = min(_echo(peer, 64) for _ in range(_TRIES))
        except (OSError, EOFError):
            return Probe("closed")
        try:
            _echo(peer, _LARGE)
            taken = sum(_echo(peer, 1 << 20) for _ in range(megabytes))
        except (OSError, EOFError):
            return Probe("large", latency)
        return Probe("", latency, (megabytes << 20) / taken if megabytes else 0.0)


# Returns the seconds until `size` bytes have come back.
def _echo(peer: socket.socket, size: int) -> float:
    began = time.monotonic()
    sender = threading.Thread(target=_send, args=(peer, bytes(size)), daemon=True)
    sender.start()
    _read(peer, size)
    sender.join()
    return time.monotonic() - began


def _send(peer: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        peer.sendall(data)


def _read(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def address_towards(host: str) -> str:
    """Returns the address at which ranks of this host would listen: the one that
    RINGDIST_SOCKET_IFNAME selects, or else the one from which it reaches `host`. If that is this
    host, by a name that leads to the loopback, it is the address of the default route. Raises
    OSError if the name is not known or there is no route."""
    with contextlib.suppress(ImportError, ValueError):
        for _, address in _native.load().info()["interfaces"]["selected"]:
            return str(address)
    own = _source_towards(host)
    if ipaddress.ip_address(own.partition("%")[0]).is_loopback:
        for target in _ELSEWHERE:
            with contextlib.suppress(OSError):
                return _source_towards(target)
    return own


# Returns the address from which this host would reach another one.
def _source_towards(host: str) -> str:
    problem = OSError(f"{host}: no address")
    for family, kind, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind) as ours:
                ours.connect(address)  # nothing is sent
                return str(ours.getsockname()[0])
        except OSError as error:
            problem = error
    raise problem
