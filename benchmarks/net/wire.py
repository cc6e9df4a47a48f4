"""What the network did: the bytes that an interface counted, and where this rank can be reached."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bytes:
    """As the interface counts them: with Ethernet, IP and TCP headers, one per segment handed to
    it, which offloading may cut into several packets later."""

    sent: int
    received: int

    def __sub__(self, before: Bytes) -> Bytes:
        return Bytes(self.sent - before.sent, self.received - before.received)


def counted(interface: str) -> Bytes:
    """Since the interface was made. Raises OSError if this host has none of that name."""
    folder = Path("/sys/class/net", interface, "statistics")
    sent, received = ((folder / f"{way}_bytes").read_text() for way in ("tx", "rx"))
    return Bytes(int(sent), int(received))


def own_address() -> str:
    """The address that this host uses towards the store's; nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        return probe.getsockname()[0]
