"""Attacks by a process that reaches the ports of a job, and has nothing else. Runs in a network
namespace of its own:

    python -m tests.attacks.strangers NAME IP:PORT[,IP:PORT...] SECONDS

Prints one line with what it has done. Each attack lasts that many seconds, or until it has sent
100 MiB.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator

LIMIT = 100 << 20  # bytes
MAGIC = {0x01: b"Rdtl", 0x05: b"Rdtl", 0x07: b"Rdtd"}  # by type of frame

Address = tuple[str, int]


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", len(body), kind) + body


def hello(kind: int) -> bytes:
    """Returns a hello with ids that nobody has."""
    ids = random.Random().randbytes(24)
    more = random.Random().randbytes(16) if kind == 0x07 else b""
    return frame(kind, MAGIC[kind] + struct.pack("<I", 1) + ids + more)


def dial(address: Address) -> socket.socket | None:
    with contextlib.suppress(OSError):
        made = socket.create_connection(address, timeout=2)
        made.setblocking(False)
        return made
    return None


def silent_connections(targets: list[Address], seconds: float) -> str:
    """Opens 2000 connections to each port, sends nothing, and keeps them."""
    until = time.monotonic() + seconds
    kept = [dial(target) for _ in range(2000) for target in targets if time.monotonic() < until]
    time.sleep(max(0.0, until - time.monotonic()))
    return f"{len(list(filter(None, kept)))} connections without a word"


def _streams(first: Callable[[], bytes]) -> Callable[[list[Address], float], str]:
    """Returns an attack that sends `first()`, then frames of 1 MiB of every type, again and
    again."""

    def attack(targets: list[Address], seconds: float) -> str:
        until, sent, connections = time.monotonic() + seconds, 0, 0
        kinds: Iterator[int] = iter(lambda: random.randrange(0x30), None)
        while time.monotonic() < until and sent < LIMIT:
            for target in targets:
                stream = dial(target)
                if stream is None:
                    continue
                connections += 1
                with contextlib.suppress(OSError), stream:
                    stream.settimeout(0.2)
                    sent += stream.send(first())
                    body = random.Random(connections).randbytes(1 << 20)
                    stream.sendall(frame(next(kinds), body))
                    sent += len(body)
        return f"{sent >> 20} MiB in {connections} connections"

    return attack


def many_hellos(targets: list[Address], seconds: float) -> str:
    """Sends hellos with random ids of processes and groups, and keeps the connections."""
    until, kept = time.monotonic() + seconds, []
    while time.monotonic() < until and len(kept) < 4000:
        for target in targets:
            if stream := dial(target):
                with contextlib.suppress(OSError):
                    stream.send(hello(random.choice(list(MAGIC))))
                kept.append(stream)
    time.sleep(max(0.0, until - time.monotonic()))
    return f"{len(kept)} hellos of unknown processes"


def handshakes(targets: list[Address], seconds: float) -> str:
    """Begins 1000 handshakes of TLS a second, and goes on with none of them."""
    begin, made = time.monotonic(), 0
    kept: list[socket.socket] = []
    while (passed := time.monotonic() - begin) < seconds:
        if made >= 1000 * passed:
            time.sleep(0.001)
            continue
        if stream := dial(targets[made % len(targets)]):
            with contextlib.suppress(OSError):
                stream.send(_client_hello())
            kept.append(stream)
        made += 1
        for old in kept[:-1000]:
            old.close()
        del kept[:-1000]
    return f"{made / seconds:.0f} handshakes a second"


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


HANDSHAKES = "handshakes of TLS"
ATTACKS: dict[str, Callable[[list[Address], float], str]] = {
    "silent connections": silent_connections,
    "hellos of unknown processes": many_hellos,
    "frames without a hello": _streams(lambda: b""),
    "frames behind a control hello": _streams(lambda: hello(0x01)),
    "frames behind a membership hello": _streams(lambda: hello(0x05)),
    "frames behind a data hello": _streams(lambda: hello(0x07)),
    "random bytes": _streams(lambda: os.urandom(1 << 16)),
    HANDSHAKES: handshakes,
}


def main() -> None:
    name, targets, seconds = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    addresses = [(ip, int(port)) for ip, port in (one.rsplit(":", 1) for one in targets.split(","))]
    print(ATTACKS[name](addresses, float(seconds)))


if __name__ == "__main__":
    main()
