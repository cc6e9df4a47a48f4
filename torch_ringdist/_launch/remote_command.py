"""Runs a command on one host and shows its output here."""

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
from torch_ringdist._launch.worker import forget_stdout


@dataclass(frozen=True)
class HostCommand:
    """A command and the ways to run it on this or another host.

    Attributes:
        host: the host to run on.
        line, environment: the command and its environment if the host is this machine.
        rsh, script: for another host, the remote shell command, which gets the host and "sh", and
            the script that it reads.
        label: text before each line of output.
    """

    host: str
    line: Sequence[str]
    environment: Mapping[str, str]
    rsh: Sequence[str]
    script: str
    label: str = ""


class RemoteCommand:
    """A running command. It ends when its stdin is closed, which also happens when this process
    ends."""

    def __init__(self, command: HostCommand) -> None:
        """Starts the command. Raises OSError if the program does not exist."""
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
            with contextlib.suppress(OSError):  # it has ended, which poll() reports
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
            start_new_session=True,  # Ctrl-C reaches only this process, which ends them
        )

    # Copies the output to stdout; runs in a thread of its own.
    def _show(self) -> None:
        source: IO[bytes] | None = self._process.stdout
        assert source is not None
        for line in source:
            try:
                sys.stdout.buffer.write(self._label + line)
                sys.stdout.buffer.flush()
            except OSError:  # the reader has closed the pipe
                forget_stdout()
            except ValueError:  # stdout is closed
                pass

    # Returns the exit status, or None while it runs.
    def poll(self) -> int | None:
        return self._process.poll()

    # Closes stdin, which ends the command.
    def ask_to_end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self, deadline: float) -> None:
        """Waits until `deadline` (time.monotonic()), then kills the command."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._thread.join(5)


# Returns True if `host` is this machine.
def is_local(host: str) -> bool:
    try:
        return is_here(host)
    except OSError:  # a name that only --rsh understands
        return False


def end_all(hosts: Sequence[RemoteCommand], seconds: float) -> None:
    """Ends all commands; those that still run after `seconds` are killed."""
    for host in hosts:
        host.ask_to_end()
    deadline = time.monotonic() + seconds
    for host in hosts:
        host.end(deadline)
