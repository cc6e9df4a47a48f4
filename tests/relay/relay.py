"""Forwards the connections between hosts, and attacks the records of TLS on their way.

Each host has the addresses of the others on its loopback interface, and the relay listens there.
For a connection from host A to host B it opens one on host B that comes from A's address. So
the relay looks like the other host to both ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import socket
import time
from dataclasses import dataclass, field

CLONE_NEWNET = 0x40000000
RECORD_HEADER = 5  # bytes: type, version and length (RFC 8446, section 5.1)
HELD = 0.2  # seconds that a reordered record waits for a later one
KINDS = ("flip", "drop", "repeat", "reorder", "truncate", "splice", "reflect")


def socket_in(namespace: str, *arguments: int) -> socket.socket:
    """Makes a socket in a network namespace. It stays there, wherever this thread goes."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file: int) -> None:
        if libc.setns(file, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        enter(there)
        try:
            return socket.socket(*arguments)
        finally:
            enter(home)
    finally:
        os.close(there)
        os.close(home)


@dataclass
class Attack:
    """An attack on the records from host `source` to host `target`.

    It begins after `skip` bytes on all connections of that way, and meets `records` records.
    """

    kind: str
    source: int
    target: int
    skip: int
    records: int
    random: random.Random
    at: float | None = None  # time.monotonic() of the first record that was met

    @classmethod
    def draw(cls, seed: int, hosts: int) -> Attack:
        dice = random.Random(seed)
        source, target = dice.sample(range(hosts), 2)
        # From the first handshake to the last operation of a run.
        skip = int(10 ** dice.uniform(0, 6.9)) - 1
        return cls(dice.choice(KINDS), source, target, skip, dice.choice([1, 1, 2, 5]), dice)

    def meets(self, source: int, target: int, size: int) -> bool:
        """Returns True if this record is attacked."""
        if (source, target) != (self.source, self.target) or not self.records:
            return False
        self.skip -= size
        if self.skip >= 0:
            return False
        self.records -= 1
        self.at = self.at or time.monotonic()
        return True

    def __str__(self) -> str:
        return f"{self.kind} from rank {self.source} to rank {self.target}"


@dataclass(eq=False)
class Way:
    """One direction of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    back: asyncio.StreamWriter  # to the sender
    source: int
    target: int
    held: list[bytes] = field(default_factory=list)


class Relay:
    """Relays between the hosts in these network namespaces. One event loop."""

    def __init__(self, namespaces: list[str], addresses: list[str]) -> None:
        self._namespaces = namespaces
        self._addresses = addresses
        self._ways: list[Way] = []
        self._servers: list[asyncio.Server] = []
        self.attack: Attack | None = None
        self.connections = 0

    def _socket(self, host: int) -> socket.socket:
        made = socket_in(self._namespaces[host], socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)
        return made

    async def listen(self, port: int, *, is_attacked: bool, targets: list[int]) -> None:
        """Relays connections to a port of the targets from all other hosts."""
        for target in targets:
            for source in range(len(self._addresses)):
                if source == target:
                    continue
                listener = self._socket(source)
                listener.bind((self._addresses[target], port))

                async def accept(
                    reader: asyncio.StreamReader,
                    writer: asyncio.StreamWriter,
                    source: int = source,
                    target: int = target,
                ) -> None:
                    await self._connect(reader, writer, source, target, port, is_attacked)

                self._servers.append(await asyncio.start_server(accept, sock=listener))

    async def _connect(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int,
        target: int,
        port: int,
        is_attacked: bool,
    ) -> None:
        onward = self._socket(target)
        onward.bind((self._addresses[source], 0))
        try:
            await asyncio.get_running_loop().sock_connect(onward, (self._addresses[target], port))
            far_reader, far_writer = await asyncio.open_connection(sock=onward)
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        there = Way(reader, far_writer, writer, source, target)
        back = Way(far_reader, writer, far_writer, target, source)
        if is_attacked:
            self._ways += [there, back]
        await asyncio.gather(self._pump(there, is_attacked), self._pump(back, is_attacked))
        for way in (there, back):
            if way in self._ways:
                self._ways.remove(way)

    async def _pump(self, way: Way, is_attacked: bool) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                if is_attacked:
                    await self._pass_on(way, await self._record(way))
                else:
                    data = await way.reader.read(1 << 16)
                    if not data:
                        break
                    way.writer.write(data)
                    await way.writer.drain()
        # The end of a connection reaches both sides, also where the ways were swapped.
        way.writer.close()
        way.back.close()

    async def _record(self, way: Way) -> bytes:
        wait = HELD if way.held else None
        try:
            header = await asyncio.wait_for(way.reader.readexactly(RECORD_HEADER), wait)
        except asyncio.TimeoutError:
            way.writer.write(b"".join(way.held))
            way.held.clear()
            header = await way.reader.readexactly(RECORD_HEADER)
        return header + await way.reader.readexactly(int.from_bytes(header[3:5], "big"))

    async def _pass_on(self, way: Way, record: bytes) -> None:
        attack = self.attack
        if attack and attack.meets(way.source, way.target, len(record)):
            record = self._attacked(attack, way, record)
        elif way.held:
            record += b"".join(way.held)
            way.held.clear()
        way.writer.write(record)
        await way.writer.drain()

    def _attacked(self, attack: Attack, way: Way, record: bytes) -> bytes:
        """Attacks a record, and returns what is sent in its place."""
        match attack.kind:
            case "flip":
                changed = bytearray(record)
                changed[attack.random.randrange(len(record))] ^= 1 << attack.random.randrange(8)
                return bytes(changed)
            case "drop":
                return b""
            case "repeat":
                return record + record
            case "reorder":
                way.held.append(record)
                return b""
            case "truncate":
                way.writer.write(record[: attack.random.randrange(len(record))])
                way.writer.close()
                raise ConnectionResetError
            case "splice":
                others = [one for one in self._ways if one.target == way.target and one is not way]
                if others:
                    other = attack.random.choice(others)
                    way.writer, other.writer = other.writer, way.writer
                return record
            case "reflect":
                way.back.write(record)
                return b""
        raise AssertionError(attack.kind)

    def close(self) -> None:
        for server in self._servers:
            server.close()
