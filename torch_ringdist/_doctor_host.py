"""Checks of one host for ``ringdist doctor``: what ringdist needs of it, and its addresses."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_ringdist import _inspect, _native
from torch_ringdist._credentials import has_key, tls_files
from torch_ringdist._units import counted, format_bytes

_GET_ADDRESS, _GET_FLAGS, _GET_MTU = 0x8915, 0x8913, 0x8921  # netdevice(7)
_UP, _LOOPBACK = 0x1, 0x8
_PER_RANK = 256 << 20  # bytes that a rank with torch needs at least
_OWN_CGROUP, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_BASE_DESCRIPTORS, _DESCRIPTORS_OF_PEER = 80, 3
_PORTS = re.compile(r"(\d{1,5}(-\d{1,5})?)?")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        check: its name, such as "descriptors".
        problem, cure: text for the user.
        fails: a job would fail by it; else it would be slow, or hard to start.
    """

    check: str
    problem: str
    cure: str
    fails: bool = True


@dataclass(frozen=True)
class Interface:
    """A network interface with an IPv4 address.

    Attributes:
        mtu: bytes of the largest packet.
    """

    name: str
    address: str
    mtu: int


@dataclass(frozen=True)
class Facts:
    """The report of a host about itself.

    Attributes:
        time: seconds since 1970 by its clock.
        versions: versions by name, which all hosts of a job share.
    """

    host: str
    time: float
    versions: dict[str, str]
    interfaces: tuple[Interface, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Facts:
        """Raises KeyError or TypeError if the facts are malformed."""
        interfaces = tuple(Interface(**one) for one in told["interfaces"])
        findings = tuple(Finding(**one) for one in told["findings"])
        return cls(told["host"], told["time"], told["versions"], interfaces, findings)


def examine(ranks: int, hosts: int, store: tuple[str, int] | None) -> Facts:
    """Returns the facts of this host, for a job with so many ranks here and on so many hosts.

    Args:
        store: host and port of a store that should be there, or None.
    """
    found = [
        *_package(hosts),
        *_transports(hosts),
        *_key(),
        *_ports(ranks),
        *_descriptors(ranks),
        *_memory(ranks),
        *_cores(ranks),
        *_kernel(),
        *(_host_name() if hosts > 1 else ()),
        *(_store(*store) if store else ()),
    ]
    return Facts(socket.gethostname(), time.time(), _versions(), interfaces(), tuple(found))


def _versions() -> dict[str, str]:
    out = {"torch_ringdist": _inspect.version(), "python": platform.python_version()}
    with contextlib.suppress(ImportError):
        import torch

        out["torch"] = torch.__version__.split("+")[0]
    return out


def _package(hosts: int) -> Iterator[Finding]:
    try:
        info = _native.load().info()
    except ImportError as error:
        problem, _, cure = str(error).partition("\n")
        yield Finding("package", problem, cure.strip() or "install it again")
        return
    except ValueError as error:
        yield Finding("settings", str(error), "correct the variable, or unset it")
        return
    names, chosen = _wanted()
    if "ucx" in names and (chosen or hosts > 1) and not info["ucx"]["path"]:
        why = "RINGDIST_TRANSPORT chooses it" if chosen else "it connects hosts"
        yield Finding(
            "ucx",
            f"there is no UCX, and {why}: {info['ucx']['origin']}",
            "pip install libucx-cu12, or use the transport tcp: RINGDIST_TRANSPORT=shm,tcp",
        )
    if problem := info["interfaces"]["problem"]:
        cure = "correct RINGDIST_SOCKET_IFNAME, or unset it to use the route to the store"
        yield Finding("interface", problem, cure)


# Returns the transports that this process may use, and True if a variable chooses them.
def _wanted() -> tuple[set[str], bool]:
    text = os.environ.get("RINGDIST_TRANSPORT", "")
    if text:
        return set(text.split(",")), True
    return {"shm", "tcp" if has_key() else "ucx"}, False


def _transports(hosts: int) -> Iterator[Finding]:
    names, chosen = _wanted()
    if hosts > 1 and not names & {"ucx", "tcp"}:
        yield Finding(
            "transport",
            f"RINGDIST_TRANSPORT={','.join(sorted(names))} has none that connects hosts",
            "add one: RINGDIST_TRANSPORT=shm,tcp or shm,ucx",
        )
    if chosen and has_key() and "ucx" in names:
        yield Finding(
            "transport",
            "RINGDIST_TRANSPORT chooses ucx, which does not encrypt, and the job has a key",
            "use the transport tcp: RINGDIST_TRANSPORT=shm,tcp",
        )


def _key() -> Iterator[Finding]:
    for file in filter(None, tls_files()):
        try:
            with open(file, "rb") as opened:
                opened.read(1)
        except OSError as error:
            yield Finding(
                "key",
                f"{file} cannot be read: {error.strerror}",
                "copy it to this host, readable for you alone (docs/how-to/encrypt-a-job.md)",
            )


def transport_ports() -> list[tuple[str, str]]:
    """Returns the variables with the ports at which each rank listens, and their values. UCX has
    ports of its own. An empty value stands for any port."""
    names, _ = _wanted()
    own = os.environ.get("RINGDIST_PORT", "")
    of_ucx = os.environ.get("UCX_TCP_PORT_RANGE", "") if "ucx" in names else own
    out = [("RINGDIST_PORT", own), ("UCX_TCP_PORT_RANGE", of_ucx)]
    return [one for one in out[: 1 if of_ucx == own else 2] if _PORTS.fullmatch(one[1])]


def _ports(ranks: int) -> Iterator[Finding]:
    for variable, text in transport_ports():
        first, _, last = text.partition("-")
        count = int(last or first or 0) - int(first or 0) + 1
        if text and (count < 1 or int(last or first) > 65535):
            problem = f"{variable}={text} is no range of ports"
            yield Finding("ports", problem, f"name one, as {variable}=47000-47999")
        elif text and count < ranks:
            yield Finding(
                "ports",
                f"{variable}={text} has {counted(count, 'port')}, and each of "
                f"{counted(ranks, 'rank')} of this host needs one",
                f"give it {ranks} ports or more, as {variable}=47000-47999",
            )


def _descriptors(ranks: int) -> Iterator[Finding]:
    needed = _BASE_DESCRIPTORS + _DESCRIPTORS_OF_PEER * ranks
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        yield Finding(
            "descriptors",
            f"a process may have {limit} file descriptors, and {counted(ranks, 'rank')} of this "
            f"host need about {needed}",
            f"ulimit -n {max(1024, needed)}, or LimitNOFILE= of its systemd unit",
        )


# The limit of a cgroup also holds for those inside it.
def _memory(ranks: int) -> Iterator[Finding]:
    limit = _memory_limit()
    if limit is not None and limit < _PER_RANK * ranks:
        yield Finding(
            "memory",
            f"the cgroup of this process may use {format_bytes(limit)}, and "
            f"{counted(ranks, 'rank')} need {format_bytes(_PER_RANK * ranks)} or more before any "
            "model is loaded",
            "raise the memory limit of the container or of the job (docker --memory, srun --mem)",
        )


def _cores(ranks: int) -> Iterator[Finding]:
    cores = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota()
    cores = min(cores, quota) if quota is not None else cores
    if ranks > cores:
        yield Finding(
            "cores",
            f"{counted(ranks, 'rank')} would share {cores:g} cores",
            "start fewer ranks on this host, or expect each step to take longer; OMP_NUM_THREADS=1",
            fails=False,
        )


# Yields the cgroup of this process for a controller (v2, and v1 where the controller has that), and
# those around it.
def _cgroups(controller: str) -> Iterator[Path]:
    with contextlib.suppress(OSError, ValueError):
        for line in _OWN_CGROUP.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                folder = Path(f"{_CGROUPS / controller if controllers else _CGROUPS}{path}")
                yield from (folder, *folder.parents)


# Returns the numbers in a file, or nothing if it is missing or has no limit.
def _numbers(file: Path) -> list[float]:
    with contextlib.suppress(OSError, ValueError):
        return [float(word) for word in file.read_text().split()]
    return []


def _memory_limit() -> float | None:
    names = ("memory.max", "memory.limit_in_bytes")
    found = [_numbers(folder / name) for folder in _cgroups("memory") for name in names]
    return min((one[0] for one in found if one), default=None)


# Returns cores.
def _cpu_quota() -> float | None:
    found = [
        _numbers(folder / "cpu.max")
        or _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
        for folder in _cgroups("cpu")
    ]
    return min((one[0] / one[1] for one in found if len(one) == 2 and one[0] > 0), default=None)


def _kernel() -> Iterator[Finding]:
    try:
        if "shm" in _wanted()[0]:
            os.close(os.memfd_create("ringdist"))
    except OSError as error:
        yield Finding(
            "shared memory",
            f"memfd_create() fails: {error.strerror}",
            "allow it in the sandbox or seccomp profile; RINGDIST_TRANSPORT=tcp goes without",
        )
    try:
        socket.socket(socket.AF_UNIX).close()
    except OSError as error:
        yield Finding(
            "unix sockets",
            f"there are no sockets of AF_UNIX: {error.strerror}",
            "ranks of this host use TCP on the loopback instead, without shared memory",
            fails=False,
        )


def interfaces() -> tuple[Interface, ...]:
    """Returns the interfaces that are up and have an IPv4 address, but for the loopback."""
    out = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def ask(request: int, name: str) -> bytes:
            return fcntl.ioctl(control, request, struct.pack("16s240x", name.encode()))

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                [flags] = struct.unpack_from("H", ask(_GET_FLAGS, name), 16)
                if not flags & _UP or flags & _LOOPBACK:
                    continue
                address = socket.inet_ntoa(ask(_GET_ADDRESS, name)[20:24])
                [mtu] = struct.unpack_from("i", ask(_GET_MTU, name), 16)
                out.append(Interface(name, address, mtu))
    return tuple(out)


def _host_name() -> Iterator[Finding]:
    name = socket.gethostname()
    found = set[str]()
    with contextlib.suppress(OSError):
        found = {str(one[4][0]) for one in socket.getaddrinfo(name, None)}
    if found and all(one.startswith("127.") or one == "::1" for one in found):
        yield Finding(
            "host name",
            f"the name of this host, {name}, leads to the loopback ({', '.join(sorted(found))}): "
            "other hosts cannot reach what listens there, such as torchrun's c10d rendezvous",
            "give torchrun --local-addr ADDRESS, or give the name an address of the network in "
            "/etc/hosts",
            fails=False,
        )


def _store(host: str, port: int) -> Iterator[Finding]:
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError as error:
        yield Finding(
            "store",
            f"nothing answers at {host}:{port}, where the store of the job should be: "
            f"{error.strerror or error}",
            "start rank 0 or its launcher first, and look at MASTER_ADDR, MASTER_PORT and at "
            "firewalls",
        )
