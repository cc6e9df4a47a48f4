"""Runs the --host-discovery-script of ringdistrun, a command that prints the available hosts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time

from torch_ringdist._launch.hosts import parse_host
from torch_ringdist.elastic import _log

_PAUSE = 1.0  # seconds between two runs of the command
_LIMIT = 30.0  # time limit of a run, in seconds


class Discovery:
    """Runs the command repeatedly in the background and keeps its last result. One thread.

    Attributes:
        hosts: slots by host, from the last successful run. It is empty before that.
    """

    def __init__(self, command: str, slots: int) -> None:
        """Stores the settings; poll() starts the command.

        Args:
            command: a shell command that prints lines of "HOST:SLOTS", or "HOST".
            slots: slots of hosts that are printed without a number.
        """
        self._command, self._slots = command, slots
        self.hosts: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - close() does
        self._next = self._began = 0.0
        self._complaint = ""

    def poll(self) -> None:
        """Starts the command when it is due, and takes its result if it ended successfully. It
        never blocks.

        After a failure the hosts stay unchanged, and a line in the log has the reason. A repeated
        reason is not logged again.
        """
        if self._process is None:
            if time.monotonic() >= self._next:
                try:
                    self._start()
                except OSError as error:
                    self._next = time.monotonic() + _PAUSE
                    self._complain(str(error))
            return
        status = self._process.poll()
        if status is None and time.monotonic() < self._began + _LIMIT:
            return
        if status is None:
            self._kill()
        self._process, self._next = None, time.monotonic() + _PAUSE
        try:
            if status is None:
                raise ValueError(f"it has taken {_LIMIT:g} s and more, and was killed")
            if status != 0:
                raise ValueError(f"it has failed with status {status}")
            self.hosts = self._parse()
            self._complaint = ""
        except ValueError as error:
            self._complain(str(error))

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            _log.event("discovery", f"--host-discovery-script: {reason}; hosts stay as they are")

    def close(self) -> None:
        """Kills the running command and all its children."""
        if self._process is not None:
            self._kill()
        self._output.close()

    def _kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(self) -> None:
        self._output.seek(0)
        self._output.truncate()
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            start_new_session=True,
        )

    # Returns the hosts that the command printed. Raises ValueError for a line of another format.
    def _parse(self) -> dict[str, int]:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        what = 'lines must be "HOST:SLOTS"'
        return dict(parse_host(line, what, self._slots) for line in lines if line.strip())
