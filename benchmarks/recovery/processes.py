"""Forks the processes of one run, receives their reports, and leaves none behind.

They are forked from this process, which has imported torch and has no threads. It adopts orphans of
its ranks, so that it can wait for all processes of a run.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from benchmarks.lifetime import end_with_parent

Tell = Callable[[Any], None]
Body = Callable[[Tell], None]

DUMP_TIME = 1.0  # time for the two signals to fill the log
END_TIME = 10.0  # time limit for killed processes to end
READY = "ready"  # report of a rank that is in its loop
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2); Linux


class Failed(Exception):
    """A process did not do its part."""


def log(text: str) -> None:
    """Writes a line to the log of this process; for use in forked processes."""
    print(f"{time.monotonic():.6f} {text}", flush=True)


def adopt_orphans() -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise SystemExit("prctl(PR_SET_CHILD_SUBREAPER) failed: this needs Linux 3.4 or newer")


@dataclass(frozen=True)
class Process:
    name: str
    pid: int
    ended: int  # a pidfd
    told: Connection
    log: Path

    def printed(self) -> str:
        return self.log.read_text(errors="replace").strip() if self.log.exists() else ""


class Processes:
    """Context manager. When it is left, all processes have ended, including those that they
    forked."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._all: list[Process] = []
        self._codes: dict[int, int] = {}
        # Nothing is written to this pipe. A reader waits until this process closes its end, or
        # ends.
        self._life, self._end = os.pipe()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fork(self, name: str, body: Body) -> Process:
        """Runs body(tell) in a new process. listen() returns the values that it passes to
        `tell`."""
        log = self._folder / name
        parent = os.getpid()
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(self._end)
                ours.close()
                _prepare(parent, log)
                body(theirs.send)
                status = 0
            except BaseException:  # the child must not return into code of the parent
                traceback.print_exc()
                status = 1
            sys.stderr.flush()
            os._exit(status)
        theirs.close()
        self._all.append(Process(name, pid, os.pidfd_open(pid), ours, log))
        return self._all[-1]

    def fork_sleeper(self) -> None:
        """Forks a child of this rank. It does nothing and holds all inherited descriptors until the
        run ends, even after the death of the rank."""
        if os.fork() == 0:
            os.read(self._life, 1)
            os._exit(0)

    def listen(self, processes: Collection[Process]) -> dict[str, Any]:
        """Returns the next report of each process, by name."""
        missing, told = {process.name: process for process in processes}, {}
        while missing:
            sources: dict[Any, Process] = {}
            for process in missing.values():
                sources[process.told] = sources[process.ended] = process
            left = self._deadline - time.monotonic()
            ready = wait(list(sources), max(0.0, left))
            if not ready:
                self._ask(missing.values())
                who = ", ".join(missing)
                raise Failed(f"no answer from {who} when the run's {self._seconds:g} s were over")
            for process in {sources[one].name: sources[one] for one in ready}.values():
                # A report from before the end is read first.
                if not process.told.poll():
                    raise Failed(f"{process.name} {self.end_of(process)}, and has told nothing")
                told[process.name] = process.told.recv()
                del missing[process.name]
        return told

    def end_of(self, process: Process) -> str:
        """Waits for the end of a process and returns a description of it."""
        if not wait([process.ended], END_TIME):
            self._ask([process])
            return f"goes on {END_TIME:g} s after its end was due"
        code = self._code(process.pid)
        return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def close(self) -> None:
        """Kills the remaining processes. Raises Failed if one of them does not end."""
        os.close(self._end)
        os.close(self._life)
        for process in self._all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + END_TIME
        try:
            while time.monotonic() < deadline:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.001)
            raise Failed(f"processes of this run live {END_TIME:g} s after all were killed")
        except ChildProcessError:
            pass  # no child is left, including adopted ones
        finally:
            for process in self._all:
                os.close(process.ended)
                process.told.close()

    def logs(self) -> str:
        return "\n".join(f"---- {one.name} (pid {one.pid}):\n{one.printed()}" for one in self._all)

    def _code(self, pid: int) -> int:
        if pid not in self._codes:
            self._codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return self._codes[pid]

    @staticmethod
    def _ask(processes: Collection[Process]) -> None:
        """Makes processes write their state to their logs: the stacks of Python and the dump of
        ringdist."""
        for number in (signal.SIGUSR2, signal.SIGUSR1):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            time.sleep(DUMP_TIME)


def _prepare(parent: int, log: Path) -> None:
    end_with_parent(parent)
    os.setsid()  # a signal to its process group reaches its children
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(written, 1)
    os.dup2(written, 2)
    sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
