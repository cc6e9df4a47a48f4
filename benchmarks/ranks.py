"""Shared code of benchmarks: starts ranks, and provides a barrier and plain sockets without a
backend."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import select
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.multiprocessing
from torch.distributed import Store

SLOT = 64  # bytes between two ranks' counters: one cache line each


class SpinBarrier:
    """Lets all ranks start within a microsecond, independent of the backends that are measured.

    A barrier of a backend would add its skew to the next timed operation, and the work of its
    threads that have not settled yet.
    """

    def __init__(self, path: Path, rank: int, world: int) -> None:
        with path.open("r+b") as file:
            self._counters = memoryview(mmap.mmap(file.fileno(), SLOT * world)).cast("Q")
        self._mine = rank * SLOT // 8
        self._others = [other * SLOT // 8 for other in range(world) if other != rank]
        self._turn = 0

    def wait(self) -> None:
        self._turn += 1
        self._counters[self._mine] = self._turn
        for other in self._others:
            while self._counters[other] < self._turn:
                os.sched_yield()


class TcpRing:
    """Plain sockets from every rank to the next, as the reference for backends over TCP.

    `address` is an address of this rank for others. exchange(n) moves the bytes of an allreduce of
    n bytes and ignores their values. Every rank sends and receives 2(N-1)/N n bytes at once.
    one_way(n) sends the same number of bytes from each even rank to the next, and no others.
    """

    _CHUNK = 1 << 18

    def __init__(self, store: Store, rank: int, world: int, address: str = "127.0.0.1") -> None:
        self._rank, self._world = rank, world
        with socket.create_server((address, 0)) as listener:
            store.set(f"tcp_ring/{rank}", f"{address} {listener.getsockname()[1]}")
            host, port = store.get(f"tcp_ring/{(rank + 1) % world}").decode().split()
            self._next = socket.create_connection((host, int(port)))
            self._previous, _ = listener.accept()
        self._next.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (self._next, self._previous):
            end.setblocking(False)
        self._out = memoryview(bytes(self._CHUNK))
        self._in = memoryview(bytearray(self._CHUNK))

    def exchange(self, size: int) -> None:
        moved = 2 * (self._world - 1) * size // self._world
        self._move(moved, moved)

    def one_way(self, size: int) -> None:
        moved = 2 * (self._world - 1) * size // self._world
        sends = self._rank % 2 == 0 and self._rank + 1 < self._world
        self._move(moved * sends, moved * (self._rank % 2))

    def _move(self, to_send: int, to_receive: int) -> None:
        while to_send or to_receive:
            sent = self._try(self._next.send, self._out[: min(to_send, self._CHUNK)])
            got = self._try(self._previous.recv_into, self._in[: min(to_receive, self._CHUNK)])
            to_send -= sent
            to_receive -= got
            if not sent and not got:
                select.select(
                    [self._previous] if to_receive else [], [self._next] if to_send else [], []
                )

    @staticmethod
    def _try(call: Callable[[memoryview], int], data: memoryview) -> int:
        if not data:
            return 0
        try:
            return call(data)
        except BlockingIOError:
            return 0


def free_port() -> int:
    """Returns a port at which nothing listens.

    It lies below those that Linux hands out, so no program gets it by chance before its use.
    """
    while True:
        port = 10000 + secrets.randbelow(20000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def launch(world: int, body: Callable[..., None], *arguments: Any) -> None:
    """Runs body(rank, world, port, barrier_path, *arguments) in `world` new processes."""
    # Math libraries read it when they are loaded, so it must be set before the processes start.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        barrier = Path(folder, "barrier")
        barrier.write_bytes(bytes(SLOT * world))
        torch.multiprocessing.spawn(
            body, args=(world, free_port(), barrier, *arguments), nprocs=world
        )
