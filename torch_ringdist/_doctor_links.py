"""Checks of the links between hosts for ``ringdist doctor``: ports, sizes of packets and speed."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass

from torch_ringdist._doctor_host import interfaces

_CONNECT = 3.0  # seconds
_ANSWER = 3.0
_LARGE = 256 << 10  # bytes, far more than a packet holds
_HELLO = 16  # bytes: the token of the listener
_TRIES = 5


class Listener:
    """Sends back what comes over each connection that begins with its token. It listens where a
    rank would (RINGDIST_PORT)."""

    def __init__(self) -> None:
        """Raises OSError if no port of RINGDIST_PORT is free."""
        self.token = secrets.token_hex(_HELLO // 2)
        self._socket = _listen(os.environ.get("RINGDIST_PORT", ""))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            peer.settimeout(60)
            if _read(peer, _HELLO).decode(errors="replace") != self.token:
                return
            while data := peer.recv(1 << 20):
                peer.sendall(data)

    def close(self) -> None:
        self._socket.close()


def _listen(ports: str) -> socket.socket:
    first, _, last = ports.partition("-")
    problem = OSError("no port")
    for port in range(int(first or 0), int(last or first or 0) + 1):
        try:
            return socket.create_server(("", port))
        except OSError as error:
            problem = error
    raise OSError(problem.errno, f"RINGDIST_PORT={ports}: {problem.strerror}")


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
    """Sends messages to a Listener and waits for their echo; `megabytes` of them to measure the
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
    """Returns the address of this host from which it reaches another one, or that of
    RINGDIST_INTERFACE. Raises OSError if the name is not known or nothing leads there."""
    chosen = os.environ.get("RINGDIST_INTERFACE", "").split(",")[0]
    for one in interfaces():
        if one.name == chosen:
            return one.address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.connect((host, 9))  # nothing is sent
        return str(ours.getsockname()[0])
