"""Snapshots of jobs: the state of each rank, the ranks that it waits for, and its Python stack.

A process passes the request on to the processes of its groups, on all hosts
(csrc/control/snapshot_relay.h). This module imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import re
import socket
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_ringdist import _dump, _statistics
from torch_ringdist._dump import DumpError
from torch_ringdist._statistics import Statistics

_VERSION = 1
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
# Files of Python, of installed packages and of this one: not where a user looks first.
_LIBRARY = re.compile(r"/lib/python3[^/]*/|/(site|dist)-packages/|/torch_ringdist/|^<")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError)
_MOST_SOURCE = 1 << 24  # bytes of a file that is read for one line
# States of groups, by precedence. A process has the first one that a group of it has.
_STATES = ("waits", "failed", "runs")


@dataclass(frozen=True)
class Frame:
    """A line of a Python stack."""

    file: str
    line: int
    function: str

    @property
    def is_library(self) -> bool:
        return bool(_LIBRARY.search(self.file))

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class GroupState:
    """A rank in one group, as GroupSlot::snapshot() describes it.

    Attributes:
        id: equal for all ranks of the group.
        state: "idle", "runs", "waits", "failed", or "awaited" if others wait in an operation that
            this rank has not called; "" for a process that has not answered.
        text: the state in words.
        op, call: number and description of the operation.
        age: seconds since it began or has made no progress.
        ranks: the ranks that it waits for, or with "awaited" those that wait.
        last: number of the last collective that the rank has called.
    """

    id: str
    rank: int
    name: str = ""
    size: int = 0
    state: str = ""
    text: str = ""
    op: int = 0
    call: str = ""
    age: float = 0.0
    ranks: tuple[int, ...] = ()
    last: int = 0


@dataclass(frozen=True)
class Op:
    """One of the latest operations of a process, in flight or ended, as csrc/engine/op/op_log.h
    describes it."""

    record: int
    group: str
    rank: int
    number: int
    name: str
    dtype: str
    input: int
    output: int
    peer: int
    began_ns: int
    ended_ns: int
    failed: bool


@dataclass(frozen=True)
class Straggler:
    """A rank that is late again and again, as StragglerDetector in csrc/engine/context finds it.

    Attributes:
        group: id of the group.
        share: part of its operations that the rank calls later than the others.
        late: by how many seconds, the mean of these.
        cause: "computes", "descheduled", "major_faults", "other_group", "stopped", "idle" or
            "unknown".
        text: all of that in words.
    """

    group: str
    rank: int
    share: float
    late: float
    cause: str
    text: str


@dataclass(frozen=True)
class SlowLink:
    """A link between hosts, or all links of a host, that are much slower than others, as
    SlowLinkDetector in csrc/engine/context finds them.

    Attributes:
        host, address: name and address of the host that sends.
        to_host, to_address: the one that receives; "" for all links of the host.
        rate, others: bytes per second, and the least of the other links.
        resent: segments that were sent again in 5 s.
        rtt: round-trip time in seconds.
        text: all of that in words.
    """

    host: str
    address: str
    to_host: str
    to_address: str
    rate: float
    others: float
    resent: int
    rtt: float
    text: str


@dataclass(frozen=True)
class Process:
    """A process of a job.

    Attributes:
        state: "waits", "runs" or "failed" in an operation, "elsewhere", "busy" if its progress
            thread does not answer; or "stopped", "silent", "lost" or "left", without an answer.
        silent_for: seconds since something came from it, if it has not answered.
        stack: the Python stack of its main thread, the newest call first; empty if unknown.
        ops: the latest operations, if they were requested.
        stragglers, slow_links: found by this process. One process of a job looks for them.
        statistics: figures of its operations and peers, if they were requested.
    """

    context: str
    host: str
    pid: int
    state: str
    groups: tuple[GroupState, ...] = ()
    stack: tuple[Frame, ...] = ()
    cause: str = ""
    silent_for: float | None = None
    ops: tuple[Op, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    statistics: Statistics | None = None

    @property
    def at(self) -> Frame | None:
        """The newest line that is not of a library."""
        return next((one for one in self.stack if not one.is_library), next(iter(self.stack), None))

    @property
    def group(self) -> GroupState | None:
        """The group that its state is about."""
        return next((one for one in self.groups if one.state == self.state), None)

    @property
    def source(self) -> str:
        """The text of the line `at`, if the process is on this host; else empty."""
        at = self.at
        if at is None or self.host != socket.gethostname() or at.file.startswith(("/proc", "/sys")):
            return ""
        # The name comes from another process, so it may be that of a pipe or of a device.
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(at.file)
            is_plain = os.path.isabs(at.file) and stat.S_ISREG(status.st_mode)
            if is_plain and 0 < status.st_size <= _MOST_SOURCE:
                return linecache.getline(at.file, at.line).strip()
        return ""


@dataclass(frozen=True)
class Snapshot:
    """The processes of a job, by rank.

    Attributes:
        seconds: time until all had answered.
        ranks: ranks in the largest group, by context.
        problems: answers that could not be read.
    """

    processes: tuple[Process, ...]
    seconds: float
    ranks: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def stragglers(self) -> list[Straggler]:
        return [found for one in self.processes for found in one.stragglers]

    @property
    def slow_links(self) -> list[SlowLink]:
        return [found for one in self.processes for found in one.slow_links]


def parse(texts: Sequence[str]) -> Snapshot:
    """Returns what the texts of _dump.snapshot() describe. Raises DumpError for another version."""
    found, problems = [], []
    try:
        end = json.loads(texts[-1])
        if end["version"] != _VERSION:
            raise DumpError(
                f"a process answered with version {end['version']!r} of snapshots, and this "
                f"command reads version {_VERSION}: it runs another version of torch_ringdist"
            )
        found += [_missing(one) for one in end["missing"]]
        seconds = float(end["seconds"])
    except _MALFORMED as error:
        raise DumpError(
            f"a process answered with no snapshot ({error!r}): it runs another version of "
            "torch_ringdist"
        ) from None
    for text in texts[:-1]:
        try:
            found.append(_answered(json.loads(text)))
        except _MALFORMED as error:
            problems.append(f"the state of a process cannot be read: {error!r}")
    ranks = _ranks_of(found)
    found.sort(key=lambda one: (ranks.get(one.context, len(found)), one.host, one.pid))
    return Snapshot(tuple(found), seconds, ranks, tuple(problems))


def _answered(told: dict[str, Any]) -> Process:
    groups = tuple(_group(one) for one in told["groups"] or ())
    states = {one.state for one in groups}
    idle = "elsewhere" if told["groups"] is not None else "busy"
    return Process(
        context=str(told["context"]),
        host=str(told["host"]),
        pid=int(told["pid"]),
        state=next((one for one in _STATES if one in states), idle),
        groups=groups,
        stack=_stack(told.get("stack", "")),
        ops=tuple(Op(*one) for one in told.get("ops", ())),
        stragglers=tuple(_straggler(one) for one in told["stragglers"]),
        slow_links=tuple(_slow_link(one) for one in told["slow_links"]),
        statistics=_statistics.parse(told["statistics"]) if "statistics" in told else None,
    )


def _stack(text: str) -> tuple[Frame, ...]:
    return tuple(Frame(file, int(line), at) for file, line, at in _FRAME.findall(text))


def _straggler(told: dict[str, Any]) -> Straggler:
    group, cause, text = (str(told[name]) for name in ("group", "cause", "text"))
    share, late = float(told["share"]), float(told["late"])
    return Straggler(group, int(told["rank"]), share, late, cause, text)


def _slow_link(told: dict[str, Any]) -> SlowLink:
    kinds = {"rate": float, "others": float, "resent": int, "rtt": float}
    names = SlowLink.__dataclass_fields__
    return SlowLink(**{name: kinds.get(name, str)(told[name]) for name in names})


def _missing(told: dict[str, Any]) -> Process:
    silent = told.get("silent_for")
    return Process(
        context=str(told["context"]),
        host=str(told.get("host", "?")),
        pid=int(told.get("pid", 0)),
        state=str(told["state"]),
        groups=tuple(_group(one) for one in told["groups"]),
        cause=str(told.get("cause", "")),
        silent_for=None if silent is None else float(silent),
    )


def _group(told: dict[str, Any]) -> GroupState:
    kinds = {"id": str, "name": str, "state": str, "text": str, "call": str, "age": float}
    names = (name for name in GroupState.__dataclass_fields__ if name in told and name != "ranks")
    values = {name: kinds.get(name, int)(told[name]) for name in names}
    return GroupState(**values, ranks=tuple(map(int, told.get("ranks", ()))))


def _ranks_of(processes: Sequence[Process]) -> dict[str, int]:
    """Returns the rank of each process in the group that has the most of them."""
    members: dict[str, dict[str, int]] = {}
    for process in processes:
        for group in process.groups:
            members.setdefault(group.id, {}).setdefault(process.context, group.rank)
    return max(members.values(), key=len, default={})


def take(
    pid: int | None = None, timeout: float = 2.0, details: int = 0
) -> tuple[list[Snapshot], list[str]]:
    """Returns snapshots of this user's jobs that have a process here, for root those of all users,
    and errors of processes that did not answer.

    Args:
        pid: only the job of this process, which may be stopped.
        timeout: seconds to wait for the answer of a process.
        details: a sum of bits, as in _dump.snapshot().

    Raises:
        DumpError: there is no such process, it has no group, or nobody of its job answers.
    """
    names = _dump.find_all()
    if pid is not None:
        if not os.path.exists(f"/proc/{pid}"):
            raise DumpError(f"there is no process {pid}")
        if pid not in {owner for owner, _ in names}:
            raise DumpError(_dump.why_none(pid, "status"))
        names.sort(key=lambda one: one[0] != pid)
    wanted = {_context_in(name) for owner, name in names if owner == pid}
    found, problems, seen = list[Snapshot](), list[str](), set[str]()
    for owner, name in names:
        if _context_in(name) in seen or _is_stopped(owner):
            continue
        try:
            snapshot = parse(_dump.snapshot(owner, name, timeout, details))
        except _dump.OfAnotherUser as error:
            problems += [str(error)] if owner == pid else []
            continue
        except DumpError as error:
            if pid in (None, owner):  # others may be of another job
                problems.append(str(error))
            continue
        contexts = {one.context for one in snapshot.processes}
        seen |= contexts
        if pid is None:
            found.append(snapshot)
            problems += snapshot.problems
        elif wanted & contexts:
            return [snapshot], list(snapshot.problems)
    if pid is not None and not problems:
        problems = [f"process {pid} is stopped, and no other process of its job answers here"]
    if not found and problems:
        raise DumpError("\n".join(problems))
    if not found:
        raise DumpError("no process of this user has a ringdist group in this network namespace")
    return found, problems


def of_host(timeout: float, details: int = 0) -> list[tuple[int, str, Process | DumpError]]:
    """Returns process id, context and state of each process of this user here, for root those of
    all users; instead of the state, the reason why it does not answer. The arguments are those of
    _dump.snapshot()."""

    def state(pid: int, name: str) -> Process | DumpError | None:
        try:
            if _is_stopped(pid):
                ours = os.getuid() in (0, os.stat(f"/proc/{pid}").st_uid)
                return DumpError(f"process {pid} is stopped") if ours else None
            return parse(_dump.snapshot(pid, name, timeout, details, whole_job=False)).processes[0]
        except (_dump.OfAnotherUser, FileNotFoundError):
            return None
        except DumpError as error:
            return error
        except Exception as error:  # any process can listen at such a name, and send anything
            return DumpError(f"the state of process {pid} cannot be read: {error!r}")

    out = list[tuple[int, str, Process | DumpError]]()
    with ThreadPoolExecutor(_dump.AT_ONCE) as pool:
        asked = [(pid, name, pool.submit(state, pid, name)) for pid, name in _dump.find_all()]
    for pid, name, answer in asked:
        if (found := answer.result()) is not None:
            out.append((pid, _context_in(name), found))
    return out


# Returns the context id in the name of a socket.
def _context_in(name: str) -> str:
    return name.rsplit("-", 1)[1]


def _is_stopped(pid: int) -> bool:
    """Returns True if the process is stopped, so that it cannot answer."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(") ", 1)[1][0] in "Tt"
    return False
