"""The part of each host in ``ringdist doctor``, and how the one that coordinates reaches it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol

from torch_ringdist import _doctor_links as links
from torch_ringdist._doctor_host import examine, transport_ports
from torch_ringdist._launch.remote_command import is_local

ON_HOST = "--on-host"  # option with which a remote shell starts it
ANSWER = 60.0  # seconds for the answer of a host
_MARK = "ringdist doctor: "  # begins a line of an answer, as a shell may print other lines
_READY = {"ready": 2}  # the number changes with the form of commands and answers
_PASSED = ("RINGDIST_", "UCX_", "LD_LIBRARY_PATH", "PYTHON", "VIRTUAL_ENV")
_END = 5.0  # seconds for all hosts to end

Answer = dict[str, Any]


class Part:
    """The part itself. It listens where ranks would, and answers commands."""

    def __init__(self) -> None:
        self._echoes, self._problems = list[links.EchoServer](), list[str]()
        for name, ports in transport_ports():
            try:
                self._echoes.append(links.EchoServer(name, ports))
            except OSError as error:
                self._problems.append(f"{name or 'ports'}: {error.strerror}")

    def answer(self, command: Mapping[str, Any]) -> Answer:
        """Returns the answer to a command of the host that coordinates."""
        if "clock" in command:
            return {"clock": time.time()}
        if "probe" in command:
            return {"probes": [asdict(links.probe(**one)) for one in command["probe"]]}
        about = command["examine"]
        store = tuple(about["store"]) if about["store"] else None
        facts = examine(about["ranks"], about["hosts"], store)
        target = about["route_target"]
        address, problem = "", "; ".join(self._problems)
        try:
            address = links.address_towards(target)
        except OSError as error:
            problem = f"it has no route to {target}: {error.strerror or error}"
        ends = [{"port": one.port, "token": one.token} for one in self._echoes]
        return {"facts": asdict(facts), "address": address, "problem": problem, "ends": ends}

    def close(self) -> None:
        for one in self._echoes:
            one.close()


def serve(source: IO[str], target: IO[str]) -> int:
    """Answers commands, a line of JSON each, until the end of the input."""
    part = Part()
    print(f"{_MARK}{json.dumps(_READY)}", file=target, flush=True)
    for line in source:
        print(f"{_MARK}{json.dumps(part.answer(json.loads(line)))}", file=target, flush=True)
    return 0


class Host(Protocol):
    """The part of a host, seen from the one that coordinates. Several may have a command at the
    same time, so a command and its answer are two calls."""

    name: str

    def send(self, command: Mapping[str, Any]) -> None:
        """Sends a command. Does not wait."""

    def receive(self) -> Answer:
        """Returns the answer to the last command. Raises HostError."""


class HostError(Exception):
    """A host does not answer, or what it answers cannot be read; the message has the reason."""


class ShellHost:
    """The part of a host that a remote shell has started, or a shell if it is this one."""

    def __init__(self, name: str, rsh: Sequence[str]) -> None:
        """Raises HostError if the shell cannot be started."""
        self.name = name
        command = [sys.executable, "-m", "torch_ringdist", "doctor", ON_HOST]
        package = str(Path(__file__).resolve().parents[1])
        variables = {k: v for k, v in os.environ.items() if k.startswith(_PASSED)}
        words = ["env", *(f"{k}={v}" for k, v in variables.items()), *command]
        try:
            self._process = subprocess.Popen(
                ["sh"] if is_local(name) else [*rsh, name, "sh"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # to end its children, too
            )
        except OSError as error:
            raise HostError(f"--rsh: {rsh[0]}: {error.strerror}") from None
        self._lines = queue.SimpleQueue[str]()
        self._error = ""  # the last line on stderr
        self._threads = [
            threading.Thread(target=one, daemon=True) for one in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()
        self._write(f"cd {shlex.quote(package)} && exec {shlex.join(words)}\n")

    def wait(self, deadline: float) -> None:
        """Waits until the host is ready, or until `deadline` (time.monotonic()). Raises
        HostError."""
        if (answer := self._answer(max(0.1, deadline - time.monotonic()))) != _READY:
            raise HostError(f"it has another version of torch_ringdist: {answer}")

    def send(self, command: Mapping[str, Any]) -> None:
        self._write(json.dumps(command) + "\n")

    def receive(self) -> Answer:
        return self._answer(ANSWER)

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which _answer() reports
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                self._lines.put(line.removeprefix(_MARK))
        self._lines.put("")

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._error = line.strip() or self._error

    def _answer(self, seconds: float) -> Answer:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self._kill()
            self._lines.put("")
            raise HostError(
                self._with_error(f"it does not answer within {seconds:.0f} s")
            ) from None
        if not line:
            self._lines.put("")  # for the next call
            self._threads[1].join(1)
            status = self._process.poll()
            raise HostError(self._with_error(f"it ended with status {status}"))
        return object_of(line)

    def _with_error(self, why: str) -> str:
        return why + (f": {self._error}" if self._error else "")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def end_all(hosts: Sequence[ShellHost]) -> None:
    """Ends the parts of all hosts; those that still run after some seconds are killed."""
    for host in hosts:
        with contextlib.suppress(OSError):
            assert host._process.stdin is not None
            host._process.stdin.close()
    deadline = time.monotonic() + _END
    for host in hosts:
        with contextlib.suppress(subprocess.TimeoutExpired):
            host._process.wait(max(0.0, deadline - time.monotonic()))
        host._kill()


def object_of(text: str) -> Answer:
    """Returns the JSON object in a text. Raises HostError."""
    try:
        out = json.loads(text)
    except ValueError:
        out = None
    if not isinstance(out, dict):
        raise HostError(f"it answers with something else: {text[:80]!r}")
    return out


class StoreHost:
    """The part of a host in a job, reached by the store of the job."""

    def __init__(self, store: Any, name: str, rank: int) -> None:
        self.name, self._store, self._rank, self._count = name, store, rank, 0

    def send(self, command: Mapping[str, Any]) -> None:
        self._count += 1
        self._store.set(_key(self._rank, self._count, "command"), json.dumps(command))

    def receive(self) -> Answer:
        try:
            answer = self._store.get(_key(self._rank, self._count, "answer"))
        except RuntimeError:
            raise HostError(f"it does not answer within {ANSWER:g} s") from None
        return object_of(answer.decode(errors="replace"))

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the store has ended
            self._store.set(_key(self._rank, self._count + 1, "command"), "")


def _key(rank: int, count: int, what: str) -> str:
    return f"ringdist/doctor/{rank}/{count}/{what}"


class LocalHost:
    """The part of the host that coordinates."""

    def __init__(self, name: str, answer: Callable[[Mapping[str, Any]], Answer]) -> None:
        self.name, self._answer_to = name, answer
        self._answers = queue.SimpleQueue[Answer]()

    def send(self, command: Mapping[str, Any]) -> None:
        def run() -> None:
            self._answers.put(self._answer_to(command))

        threading.Thread(target=run, daemon=True).start()

    def receive(self) -> Answer:
        try:
            return self._answers.get(timeout=ANSWER)
        except queue.Empty:
            raise HostError(f"it does not answer within {ANSWER:g} s") from None


def place_of_this() -> str:
    """Returns a text that differs between hosts. It begins with the name of this one."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    network = os.readlink("/proc/self/ns/net")
    return f"{os.uname().nodename} {boot} {network}"


def serve_store(store: Any, rank: int) -> None:
    """Answers the commands of rank 0, which come by the store."""
    part, count = Part(), 1
    store.set_timeout(timedelta(hours=1))
    with contextlib.suppress(RuntimeError):  # rank 0 has ended, and its store with it
        while command := store.get(_key(rank, count, "command")):
            store.set(_key(rank, count, "answer"), json.dumps(part.answer(json.loads(command))))
            count += 1
