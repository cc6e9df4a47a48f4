"""Requests to running processes for their state, and the command ``ringdist dump PID``.

It is pure Python without torch, except for jobs with a key, and needs no group of its own. Every
Context of a process that uses ringdist listens on an abstract unix socket
"ringdist-<pid>-<16 hex digits>". A frame on it has this format:

    body length (u32, little endian) | type (u8) | body

The request for a dump has type 0x20 and no body; the answer has type 0x21 and UTF-8 text. A request
for a snapshot has type 0x22 and a body of one byte; csrc/control/snapshot_relay.h describes its
answer of several frames. A thread that runs no collectives sends the answers, so a process that
hangs in a collective still answers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch_ringdist import _native
from torch_ringdist._credentials import has_key, tls_files
from torch_ringdist._errors import CommandError
from torch_ringdist._printable import escaped

TIMEOUT = 5.0
_HEADER = struct.Struct("<IB")
_DUMP_REQUEST = 0x20
_DUMP = 0x21
_SNAPSHOT_REQUEST = 0x22
_SNAPSHOT = 0x23
_SNAPSHOT_END = 0x24
_WHOLE_JOB = 1  # a bit of the body of the request
WITH_OPS, WITH_STATISTICS, WITH_STACK = 2, 8, 16  # three more
_MAX_BODY = 64 << 20
_LISTENING = "00010000"  # __SO_ACCEPTCON in the flags column of /proc/net/unix
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid
AT_ONCE = 32  # processes that get a request at the same time
_WITHOUT_KEY = "has not proven the key: "  # begins an answer, where a key is set


class DumpError(CommandError):
    """The state could not be read. The message has the reason, and what else to try."""


class OfAnotherUser(DumpError):
    """The process belongs to another user, and this one is not root."""


class _ForeignSocket(DumpError):
    pass


def ask(pid: int, timeout: float = TIMEOUT) -> list[str]:
    """Returns the state of process `pid`, one text per Context; a process usually has one.

    Args:
        pid: a process of this host.
        timeout: seconds to wait for the answer of each Context.

    Raises:
        DumpError: no such process, none that uses ringdist, no permission, or no answer in time.
    """
    if not os.path.exists(f"/proc/{pid}"):
        raise DumpError(f"there is no process {pid}")
    names = find(pid)
    if not names:
        raise DumpError(why_none(pid))
    states, foreign = [], None
    for name in names:
        try:
            states.append(_request(pid, name, _DUMP_REQUEST, b"", timeout)[0])
        except _ForeignSocket as error:
            foreign = error
    if foreign and not states:
        raise foreign
    return states


def ask_all(timeout: float = TIMEOUT) -> tuple[list[str], list[str]]:
    """Returns the states of this user's processes that have a group, and the errors of the others.

    The processes are found by their sockets, so only those of this network namespace are listed.
    The first line of each state names the process and what it waits for.

    Raises:
        DumpError: this user has no such process.
    """
    states, problems = [], []
    with ThreadPoolExecutor(AT_ONCE) as pool:  # a stopped process must not delay the others
        answers = [
            pool.submit(_request, pid, name, _DUMP_REQUEST, b"", timeout, True)
            for pid, name in find_all()
        ]
    for answer in answers:
        try:
            states.append(answer.result()[0])
        except OfAnotherUser:
            continue
        except DumpError as error:
            problems.append(str(error))
    if not states and not problems:
        raise DumpError("no process of this user has a ringdist group in this network namespace")
    return states, problems


def snapshot(
    pid: int, name: str, timeout: float, details: int = 0, whole_job: bool = True
) -> list[str]:
    """Returns the texts of a snapshot of a job: JSON for each process that has answered, and at
    last JSON about the others, as csrc/control/snapshot_relay.h describes it.

    Args:
        pid: a process of this user, or of any user where this one is root.
        name: the name of its socket, as find_all() returns it.
        timeout: seconds to wait for the last text.
        details: a sum of bits. With WITH_OPS each process also sends its latest operations, and
            with WITH_STATISTICS figures of its operations and peers. With WITH_STACK it sends the
            stack of its main thread, which gets a signal for that.
        whole_job: all processes of its groups answer, and not this one alone.

    Raises:
        OfAnotherUser: the socket is that of another user's process.
        DumpError: no permission, or no answer in time.
    """
    body = bytes([(_WHOLE_JOB if whole_job else 0) | details])
    return _request(pid, name, _SNAPSHOT_REQUEST, body, timeout, only_ours=True)


def find(pid: int) -> list[str]:
    """Returns the names of the sockets on which process `pid` listens, without the leading NUL."""
    return [name for owner, name in find_all() if owner == pid]


def find_all() -> list[tuple[int, str]]:
    """Returns process id and name of all sockets of ringdist, of any user, sorted."""
    wanted = re.compile(r"@(ringdist-([0-9]+)-[0-9a-f]{16})")
    found = set()
    # Any user can listen at a name of any bytes, also those that str.splitlines() splits at.
    for line in Path("/proc/net/unix").read_bytes().decode("latin-1").split("\n")[1:]:
        # Columns: Num RefCount Protocol Flags Type St Inode [Path]. Accepted connections have the
        # same name.
        column = line.split(None, 7)
        match = wanted.fullmatch(column[7]) if len(column) == 8 else None
        if match and column[3] == _LISTENING:
            found.add((int(match.group(2)), match.group(1)))
    return sorted(found)


def why_none(pid: int, command: str = "dump") -> str:
    """Returns the reason why no socket of the process was found, and what to try."""
    text = f"process {pid} has no ringdist group"
    try:
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return (
                f"process {pid} is in another network namespace, where its socket cannot be "
                f"seen; try: nsenter --net --target {pid} python -m torch_ringdist {command} {pid}"
            )
    except OSError:
        text += ", or is in another network namespace (only root can tell)"
    return f"{text}. It gets one when it calls init_process_group with the backend ringdist."


# Checks the process at the other end of the socket. With `only_ours` it raises OfAnotherUser for a
# process of another user, unless `root_sees_all` and this is root. Else it raises _ForeignSocket
# unless it is process `pid`, here or in a pid namespace further in, because any process can listen
# at any name.
def _check_peer(pid: int, peer: socket.socket, only_ours: bool, root_sees_all: bool) -> None:
    given = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    listener, uid, _ = _CREDENTIALS.unpack(given)
    if only_ours:
        if uid != os.getuid() and not (root_sees_all and os.getuid() == 0):
            raise OfAnotherUser(f"process {pid} is one of uid {uid}, and yours is {os.getuid()}")
    elif listener != pid and pid not in _inner_pids(listener):
        raise _ForeignSocket(
            f"process {pid} is not asked, because another one listens at a name of its sockets, "
            f"pid {listener} of uid {uid}; 'kill -USR1 {pid}' lets it write its state to its "
            "standard error"
        )


# Returns the ids that a process has in the pid namespaces from this one inwards.
def _inner_pids(pid: int) -> list[int]:
    with contextlib.suppress(OSError, IndexError):
        return _status(pid, b"NSpid")
    return []


# Returns a field of proc(5), status, of a process. Root owns the files in /proc of one that others
# may not trace. Raises OSError if there is no such process, and IndexError without the field.
def _status(pid: int, field: bytes) -> list[int]:
    text = Path(f"/proc/{pid}/status").read_bytes()
    return [int(word) for word in text.split(b"\n" + field + b":")[1].split(b"\n")[0].split()]


# Sends a request to the socket `name`, and returns the texts of the answer. See _check_peer() for
# `pid` and `only_ours`. It raises DumpError if it cannot connect, or if no answer or an unknown one
# comes within `timeout` seconds.
def _request(
    pid: int, name: str, kind: int, body: bytes, timeout: float, only_ours: bool = False
) -> list[str]:
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        try:
            peer.settimeout(timeout)
            peer.connect("\0" + name)
            _check_peer(pid, peer, only_ours, root_sees_all=kind == _SNAPSHOT_REQUEST)
            if not has_key():
                return _ask_without_key(pid, peer, kind, body, deadline)
            try:
                return _ask_with_key(pid, name, kind, body, timeout)
            except DumpError as error:
                if kind != _DUMP_REQUEST:
                    raise
                try:  # its job may have no key
                    return [_WITHOUT_KEY + _ask_without_key(pid, peer, kind, body, deadline)[0]]
                except (DumpError, EOFError, OSError):
                    raise error from None
        except (TimeoutError, BlockingIOError):  # BlockingIOError: its connection queue is full
            raise DumpError(
                f"process {pid} did not answer within {timeout:g} s: it is stopped, starved, or "
                f"its control thread is stuck; try: py-spy dump --native --pid {pid}"
            ) from None
        except (PermissionError, EOFError, ConnectionResetError, BrokenPipeError):
            raise DumpError(
                f"process {pid} closed the connection: it answers only its own user and root"
                f"{_owner(pid)}, and if its job has a key, processes with it or a certificate; "
                f"'kill -USR1 {pid}' lets it write its state to its standard error"
            ) from None
        except OSError as error:
            raise DumpError(f"cannot ask process {pid} on socket @{name}: {error}") from None


# Returns the texts of an answer, read from the connected socket `peer`.
def _ask_without_key(
    pid: int, peer: socket.socket, request: int, body: bytes, deadline: float
) -> list[str]:
    peer.sendall(_HEADER.pack(len(body), request) + body)
    accepted = {_DUMP} if request == _DUMP_REQUEST else {_SNAPSHOT, _SNAPSHOT_END}
    texts = []
    while True:
        size, kind = _HEADER.unpack(_read(peer, _HEADER.size, deadline))
        if kind not in accepted or size > _MAX_BODY:
            raise DumpError(
                f"process {pid} answered with frame type {kind:#x} of {size} bytes instead of "
                f"{min(accepted):#x}: it runs another version of torch_ringdist"
            )
        texts.append(_read(peer, size, deadline).decode("utf-8", errors="replace"))
        if kind != _SNAPSHOT:
            return texts


# Returns the texts of an answer, read with the key of this process, or a certificate.
def _ask_with_key(pid: int, name: str, request: int, body: bytes, timeout: float) -> list[str]:
    native = _native.load()
    try:
        texts = native.report_of("@" + name, tls_files(), request, body, timeout)
        return [text.decode("utf-8", errors="replace") for text in texts]
    except RuntimeError as error:
        raise DumpError(
            f"process {pid} does not answer with the key of this process, or a certificate: {error}"
        ) from None


# Reads exactly `size` bytes. Raises TimeoutError at the deadline and EOFError at the end of the
# stream.
def _read(peer: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        peer.settimeout(left)
        part = peer.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


# Returns text that compares the owner of the process with this user.
def _owner(pid: int) -> str:
    try:
        return f" (its uid is {_status(pid, b'Uid')[1]}, yours is {os.getuid()})"
    except OSError:
        return ", and has just ended"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("pid", type=int, nargs="?", metavar="PID", help="a process of this machine")
    which.add_argument("--all", action="store_true", help="all of this user that have a group")


def run(args: argparse.Namespace) -> None:
    """Prints the states of one process or of all. Raises DumpError if one does not answer."""
    states, problems = ask_all() if args.all else (ask(args.pid), [])
    texts = [escaped(text.rstrip("\n")) for text in states]
    if len(texts) > 1:  # a line for each comes first
        texts = ["\n".join(text.split("\n", 1)[0] for text in texts), *texts]
    print("\n\n".join(texts))
    if problems:
        raise DumpError("\n".join(problems))
