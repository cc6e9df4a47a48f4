"""A command on one host, whose output is shown here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from torch_ringdist._launch.addresses import is_here


@dataclass(frozen=True)
class HostCommand:
    """
    Attributes:
        host: where.
        line, environment: what runs there, if that is here.
        rsh, script: else what reaches it, given the host and "sh"; and the same for that shell.
        label: before each line of output.
    """

    host: str
    line: Sequence[str]
    environment: Mapping[str, str]
    rsh: Sequence[str]
    script: str
    label: str = ""


class RemoteCommand:
    """It ends when its stdin is closed, as it is when this process ends."""

    def __init__(self, command: HostCommand) -> None:
        """Raises OSError: what is to be run is not there."""
        self.host = command.host
        self._label = command.label.encode()
        if is_local(command.host):
            self._process = self._popen(command.line, {**os.environ, **command.environment})
        else:
            try:
                self._process = self._popen([*command.rsh, command.host, "sh"], None)
            except OSError as error:
                raise OSError(error.errno, f"--rsh: {error.strerror}", command.rsh[0]) from None
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # it has ended: its status says so
                self._process.stdin.write(command.script.encode())
                self._process.stdin.flush()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    @staticmethod
    def _popen(
        command: Sequence[str], environment: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which tells them
        )

    def _show(self) -> None:
        source: IO[bytes] | None = self._process.stdout
        assert source is not None
        for line in source:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, say `head`
                sys.stdout.buffer.write(self._label + line)
                sys.stdout.buffer.flush()

    def poll(self) -> int | None:
        return self._process.poll()

    def ask_to_end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self, deadline: float) -> None:
        """What is still there then is killed."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._thread.join(5)


def is_local(host: str) -> bool:
    try:
        return is_here(host)
    except OSError:  # a name for --rsh alone
        return False


def end_all(hosts: Sequence[RemoteCommand], seconds: float) -> None:
    """They have so long, when asked to."""
    for host in hosts:
        host.ask_to_end()
    deadline = time.monotonic() + seconds
    for host in hosts:
        host.end(deadline)
