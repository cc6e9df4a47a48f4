"""A worker: a process that is started again when it dies."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from torch_ringdist.elastic import _log
from torch_ringdist.elastic._leave import STATUS as LEFT

# A process that lived for less than this is restarted after a pause.
_SHORT_LIFE = 5.0  # seconds
_PAUSE = 1.0
_MOST_AT_ONCE = 1 << 20  # bytes of output that are copied at a time


def command_of(args: argparse.Namespace) -> list[str]:
    """Returns the command that each worker runs."""
    if args.no_python:
        return [args.script, *args.arguments]
    how = ["-m", args.script] if args.module else [args.script]
    return [sys.executable, "-u", *how, *args.arguments]


# Runs one process at a time, logs its output to a file, and copies that to stdout. One thread.
class Worker:
    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        mark: str,
    ) -> None:
        """Stores the settings; start() starts a process.

        Args:
            number: number of the worker, and LOCAL_RANK unless the environment sets it.
            command: the command to run.
            environment: the environment of the process.
            folder: the folder of the logs.
            mark: prefix of log names that makes them unique if hosts share the folder.
        """
        self.number, self._command, self._mark = number, command, mark
        self._environment = {"LOCAL_RANK": str(number), **environment}
        self._folder = folder
        self.attempt = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at, self._asked = 0.0, False
        self._unread = b""
        self._log: BinaryIO | None = None  # for reading

    # Starts the process, or the next attempt after it has ended.
    def start(self) -> None:
        self.attempt += 1
        if self._log is not None:
            self._log.close()
        path = self._folder / f"{self._mark}worker-{self.number}.{self.attempt}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        except OSError as error:  # training is worth more than its output
            _log.event("no_log", f"worker {self.number}: its output is lost: {error}")
            path = Path(os.devnull)
        self._log = path.open("rb")
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches only the launcher
            )
        self._started_at, self._asked = time.monotonic(), False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int:
        """Exit status of the ended process; negative for the signal that ended it."""
        assert self._process is not None and self._process.returncode is not None
        return self._process.returncode

    @property
    def outcome(self) -> str:
        """Description of how the process ended."""
        if self.status == 0:
            return "has finished"
        if self.status == LEFT:
            return "has left"
        if self.status < 0:
            names = {one.value: one.name for one in signal.Signals}
            return f"was ended by {names.get(-self.status, f'signal {-self.status}')}"
        return f"has failed with status {self.status}"

    @property
    def may_start_at(self) -> float:
        """Earliest restart time by time.monotonic(). A process that failed by itself, or lived less
        than 5 s, is restarted after 1 s, because its successor may fail in the same way."""
        now = time.monotonic()
        waits = self.status > 0 or now - self._started_at < _SHORT_LIFE
        return now + _PAUSE if waits else now

    def ask_to_leave(self) -> None:
        """Sends SIGTERM, once per process."""
        if self.runs and not self._asked:
            self._asked = True
            os.kill(self.pid, signal.SIGTERM)

    def end_all_of_it(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of its session, even if the first process has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kills the process and all processes that are still in its session."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def show(self, *, rest: bool = False) -> None:
        """Copies new complete lines of the log to stdout. With `rest` it also copies an incomplete
        last line."""
        if self._log is None:
            return
        new = b""
        with contextlib.suppress(OSError):  # the folder may be on a host that is gone
            new = self._log.read(-1 if rest else _MOST_AT_ONCE)
        *lines, self._unread = (self._unread + new).split(b"\n")
        if b"\r" in self._unread:  # only the last state of a progress bar is shown
            bar, _, self._unread = self._unread.rpartition(b"\r")
            lines.append(bar.rpartition(b"\r")[2])
        if (rest and self._unread) or len(self._unread) > _MOST_AT_ONCE:
            lines, self._unread = [*lines, self._unread], b""
        if not lines:
            return
        try:
            for line in lines:
                sys.stdout.buffer.write(b"[%d] %b\n" % (self.number, line))
            sys.stdout.buffer.flush()
        except OSError:  # the reader, such as `head`, has closed the pipe
            forget_stdout()


def forget_stdout() -> None:
    """Discards what is printed from now on. Without this, Python would fail at its end, as it has
    bytes that it cannot write."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
