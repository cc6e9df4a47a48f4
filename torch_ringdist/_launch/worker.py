"""One worker: a process, and those that take its place when it dies."""

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

from torch_ringdist.elastic._leave import STATUS as LEFT

# One that does not live so long is not started again at once.
_SHORT_LIFE = 5.0  # seconds
_PAUSE = 1.0


def command_of(args: argparse.Namespace) -> list[str]:
    """Of the command line, what each worker runs."""
    if args.no_python:
        return [args.script, *args.arguments]
    how = ["-m", args.script] if args.module else [args.script]
    return [sys.executable, "-u", *how, *args.arguments]


class Worker:
    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        mark: str,
    ) -> None:
        """`mark` tells its logs in `folder` from those of other hosts. LOCAL_RANK is its number,
        where the environment has none."""
        self.number, self._command, self._mark = number, command, mark
        self._environment = {"LOCAL_RANK": str(number), **environment}
        self._folder = folder
        self.attempt = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at, self._asked = 0.0, False
        self._unread = b""
        self._log: Path | None = None
        self._at = 0

    def start(self) -> None:
        self.attempt += 1
        self._log, self._at = (
            self._folder / f"{self._mark}worker-{self.number}.{self.attempt}.log",
            0,
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the launcher
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
        """Of one that has ended; below 0 the signal that ended it."""
        assert self._process is not None and self._process.returncode is not None
        return self._process.returncode

    @property
    def outcome(self) -> str:
        """Of one that has ended, in words."""
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
        """By time.monotonic(). What has failed by itself may soon fail on all."""
        now = time.monotonic()
        waits = self.status > 0 or now - self._started_at < _SHORT_LIFE
        return now + _PAUSE if waits else now

    def ask_to_leave(self) -> None:
        """Once for each process."""
        if self.runs and not self._asked:
            self._asked = True
            os.kill(self.pid, signal.SIGTERM)

    def end_all_of_it(self, number: signal.Signals) -> None:
        """A signal to what it has started in its session, whether or not it runs itself."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """With all that it has started, if that is in its session still."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def show(self, *, rest: bool = False) -> None:
        """Whole lines that it has written since, on stdout; with `rest`, what no line ends, too."""
        if self._log is None:
            return
        with self._log.open("rb") as log:
            log.seek(self._at)
            new = log.read()
        self._at += len(new)
        *lines, self._unread = (self._unread + new).split(b"\n")
        if b"\r" in self._unread:  # a progress bar: only what it is now
            bar, _, self._unread = self._unread.rpartition(b"\r")
            lines.append(bar.rpartition(b"\r")[2])
        if rest and self._unread:
            lines, self._unread = [*lines, self._unread], b""
        if not lines:
            return
        with contextlib.suppress(OSError):  # who reads it has seen enough, say `head`
            for line in lines:
                sys.stdout.buffer.write(b"[%d] %b\n" % (self.number, line))
            sys.stdout.buffer.flush()
