"""The part of each host in ``ringdist doctor``, and how the one that coordinates reaches it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol

from torch_ringdist import _doctor_links as links
from torch_ringdist._doctor_host import examine

ON_HOST = "--on-host"  # option with which a remote shell starts it
ANSWER = 60.0  # seconds for the answer of a host
_START = 60.0  # for a host to start its part


def answer_of(listener: links.Listener, command: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer of this host to a command of the one that coordinates."""
    if "probe" in command:
        return asdict(links.probe(**command["probe"]))
    about = command["examine"]
    store = tuple(about["store"]) if about["store"] else None
    facts = examine(about["ranks"], about["hosts"], store)
    address, problem = "", ""
    try:
        address = links.address_towards(about["towards"])
    except OSError as error:
        problem = f"it finds no way to {about['towards']}: {error.strerror or error}"
    place = {"address": address, "problem": problem, "port": listener.port, "token": listener.token}
    return {"facts": asdict(facts), **place}


def serve(source: IO[str], target: IO[str]) -> int:
    """Answers commands, a line of JSON each, until the end of the input."""
    listener = links.Listener()
    print(json.dumps({"ready": True}), file=target, flush=True)
    for line in source:
        print(json.dumps(answer_of(listener, json.loads(line))), file=target, flush=True)
    return 0


class Host(Protocol):
    """The part of a host, seen from the one that coordinates."""

    name: str

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer. Raises HostError."""


class HostError(Exception):
    """A host does not answer; the message has the reason."""


class ShellHost:
    """The part of a host that a remote shell has started."""

    def __init__(self, name: str, rsh: Sequence[str]) -> None:
        """Raises HostError if the shell cannot be started."""
        self.name = name
        command = [sys.executable, "-m", "torch_ringdist", "doctor", ON_HOST]
        package = str(Path(__file__).resolve().parents[1])
        variables = {k: v for k, v in os.environ.items() if k.startswith("RINGDIST_")}
        words = ["env", *(f"{k}={v}" for k, v in variables.items()), *command]
        try:
            self._process = subprocess.Popen(
                [*rsh, name, "sh"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise HostError(f"--rsh: {rsh[0]}: {error.strerror}") from None
        self._lines = queue.SimpleQueue[str]()
        threading.Thread(target=self._read, daemon=True).start()
        self._write(f"cd {shlex.quote(package)} && exec {shlex.join(words)}\n")

    def wait(self) -> None:
        """Waits until the host is ready. Raises HostError."""
        self._line(_START)

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self._write(json.dumps(command) + "\n")
        answer = json.loads(self._line(ANSWER))
        assert isinstance(answer, dict)
        return answer

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which _line() reports
            self._process.stdin.write(text)
            self._process.stdin.flush()

    # A shell may print other lines.
    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put("")

    def _line(self, seconds: float) -> str:
        why = ""
        try:
            if line := self._lines.get(timeout=seconds):
                return line
        except queue.Empty:
            why = f"it does not answer within {seconds:g} s"
            self._process.kill()
        assert self._process.stderr is not None
        said = self._process.stderr.read().strip().splitlines()
        why = why or f"it ended with status {self._process.wait()}"
        raise HostError(why + (f": {said[-1]}" if said else ""))

    def end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class StoreHost:
    """The part of a host in a job, reached by the store of the job."""

    def __init__(self, store: Any, name: str, rank: int) -> None:
        self.name, self._store, self._rank, self._count = name, store, rank, 0

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        key = f"ringdist/doctor/{self._rank}/{self._count}"
        self._count += 1
        self._store.set(f"{key}/command", json.dumps(command))
        try:
            answer = json.loads(self._store.get(f"{key}/answer"))
        except RuntimeError:
            raise HostError("does not answer") from None
        assert isinstance(answer, dict)
        return answer

    def end(self) -> None:
        self._store.set(f"ringdist/doctor/{self._rank}/{self._count}/command", "")


def place_of_this() -> str:
    """Returns a text that differs between hosts. It begins with the name of this one."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    network = os.readlink("/proc/self/ns/net")
    return f"{os.uname().nodename} {boot} {network}"


class Here:
    """The part of the host that coordinates."""

    def __init__(self, host: StoreHost, listener: links.Listener) -> None:
        self.name, self._listener = host.name, listener

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        return answer_of(self._listener, command)


def serve_store(store: Any, rank: int) -> None:
    """Answers the commands of rank 0, which come by the store."""
    listener = links.Listener()
    count = 0
    store.set_timeout(timedelta(hours=1))
    with contextlib.suppress(RuntimeError):  # rank 0 has ended, and its store with it
        while command := store.get(f"ringdist/doctor/{rank}/{count}/command"):
            answer = answer_of(listener, json.loads(command))
            store.set(f"ringdist/doctor/{rank}/{count}/answer", json.dumps(answer))
            count += 1
