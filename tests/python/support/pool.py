"""Ranks as real processes, kept from test to test, because starting one costs an import of torch.

A server process imports torch once and forks the ranks. Each rank receives the functions to run
over a pipe. A call has a time limit. When it passes, every rank prints its state (the backend's
dump, and the stacks of its Python threads), and all are killed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch.distributed as dist

from support.launched import preloaded
from support.rank import Launch, serve

HERE = Path(__file__).resolve().parents[1]
START_LIMIT = 110.0
# Time for the answers to the two signals to reach the log.
DUMP_TIME = 1.0


class Hang(AssertionError):
    """A rank did not answer in time. The text contains the states of all ranks."""


@cache
def _server():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.preload"])
    # In some versions of Python the server does not get this process's sys.path.
    old = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{old}" if old else str(HERE)
    # Ranks share the cores of one machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return context


@cache
def _store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def free_port() -> int:
    """Returns a port at which nothing listens.

    It lies below those that Linux hands out, so no program gets it by chance before its use.
    """
    while True:
        port = 10000 + secrets.randbelow(20000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Pool:
    """A pool of `size` ranks that have joined one default group."""

    _numbers = itertools.count()

    def __init__(self, size: int, *, rank0_hosts_store: bool = False, **launch: Any) -> None:
        self.size = size
        self.alive = True
        self.folder = tempfile.mkdtemp(prefix="ringdist_ranks_")
        port = free_port() if rank0_hosts_store else _store().port
        self.launch = Launch(
            size=size,
            port=port,
            prefix=f"pool{next(Pool._numbers)}",
            log=f"{self.folder}/rank",
            rank0_hosts_store=rank0_hosts_store,
            **launch,
        )
        self.processes, self.pipes = [], []
        for rank in range(size):
            ours, theirs = multiprocessing.Pipe()
            process = _server().Process(target=serve, args=(rank, self.launch, theirs), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)
        self.collect(START_LIMIT)

    def run(self, function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
        """Returns the results of function(*args) on all ranks. A rank that raises fails the
        test."""
        self.start(function, *args)
        return list(self.collect(timeout).values())

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Makes all ranks call function(*args). collect() returns the results."""
        for pipe in self.pipes:
            pipe.send((function.__module__, function.__qualname__, args))

    def collect(self, timeout: float = 60.0, without: tuple[int, ...] = ()) -> dict[int, Any]:
        """Returns results by rank, of all but the ranks `without`."""
        replies = self._replies(set(range(self.size)) - set(without), timeout)
        if not all(good for good, _ in replies.values()):
            self._fail(
                "\n".join(
                    f"rank {rank} of {self.size}: {value}\n{value.trace}"
                    for rank, (good, value) in replies.items()
                    if not good
                )
            )
        return {rank: value for rank, (_, value) in sorted(replies.items())}

    def kill(self, rank: int, number: int = signal.SIGKILL) -> float:
        """Sends a signal to one rank, not to its children. Returns the time."""
        now = time.monotonic()
        os.kill(self.processes[rank].pid, number)
        return now

    def log(self, rank: int) -> str:
        """Returns the output of the rank."""
        return Path(f"{self.launch.log}.{rank}").read_text(errors="replace")

    def close(self) -> None:
        """Lets the ranks leave. Kills ranks that do not."""
        if not self.alive:
            return
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        deadline = time.monotonic() + 10
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self.discard()

    def discard(self) -> None:
        """Kills the remaining ranks and their children."""
        self.alive = False
        for process, pipe in zip(self.processes, self.pipes, strict=True):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join(10)
            pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _replies(self, missing: set[int], limit: float) -> dict[int, tuple[bool, Any]]:
        replies: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + limit
        while missing:
            sources: dict[Any, int] = {}
            for rank in missing:
                sources[self.pipes[rank]] = sources[self.processes[rank].sentinel] = rank
            ready = multiprocessing.connection.wait(sources, max(0, deadline - time.monotonic()))
            if not ready:
                self._hang(missing, limit)
            for rank in {sources[source] for source in ready}:
                try:
                    # A reply that a rank sent before it died has priority.
                    if not self.pipes[rank].poll():
                        raise EOFError
                    replies[rank] = self.pipes[rank].recv()
                except (EOFError, OSError):
                    self.processes[rank].join(5)
                    code = self.processes[rank].exitcode
                    self._fail(f"rank {rank} of {self.size} died, exit code {code}")
                missing.discard(rank)
        return replies

    def _hang(self, missing: set[int], limit: float) -> None:
        for process in self.processes:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        time.sleep(DUMP_TIME)
        self._fail(f"no answer within {limit:.0f} s from rank(s) {sorted(missing)}", Hang)

    def _fail(self, text: str, kind: type[AssertionError] = AssertionError) -> None:
        for rank in range(self.size):
            with contextlib.suppress(OSError):
                if printed := self.log(rank).strip():
                    text += f"\n---- rank {rank} printed:\n{printed}"
        self.discard()
        raise kind(text)


def run_interpreters(
    count: int,
    code: str,
    *,
    size: int | None = None,
    timeout: float = 110.0,
    fresh: bool = False,
    **variables: str,
) -> list[subprocess.CompletedProcess]:
    """Runs `code` in interpreters of its own, for tests of how a process ends.

    Their arguments are rank, size and the port of an empty store. With `fresh` they are started,
    not forked from one that has imported torch.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", preloaded.FINALIZE: "1", **variables}
    start: Any = subprocess.Popen if fresh else preloaded.ForkedProcess
    done = []
    deadline = time.monotonic() + timeout
    with contextlib.ExitStack() as ends:
        running = []
        for rank in range(count):
            files = [ends.enter_context(tempfile.TemporaryFile("w+")) for _ in "oe"]
            process = start(
                [sys.executable, "-c", code, str(rank), str(size or count), str(store.port)],
                env=environment,
                stdout=files[0],
                stderr=files[1],
                start_new_session=True,
            )
            ends.callback(_end_session, process)
            running.append((process, files))
        for process, files in running:
            status = process.wait(max(0.1, deadline - time.monotonic()))
            done.append(subprocess.CompletedProcess(code, status, *preloaded.texts(*files)))
    return done


def _end_session(process: Any) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
