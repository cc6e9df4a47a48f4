"""Reads the byte counters of an interface, and finds the address of this rank."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bytes:
    """Bytes as counted by an interface, with Ethernet, IP and TCP headers.

    Headers count once per segment that is passed to the interface. Offloading may later cut a
    segment into several packets.
    """

    sent: int
    received: int

    def __sub__(self, before: Bytes) -> Bytes:
        return Bytes(self.sent - before.sent, self.received - before.received)


def counted(interface: str) -> Bytes:
    """Returns the bytes since the interface was created. Raises OSError if this host has no
    interface of that name."""
    folder = Path("/sys/class/net", interface, "statistics")
    sent, received = ((folder / f"{way}_bytes").read_text() for way in ("tx", "rx"))
    return Bytes(int(sent), int(received))


def own_address() -> str:
    """Returns the address that this host uses to reach the store's host. Nothing is sent for
    that."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        return probe.getsockname()[0]
