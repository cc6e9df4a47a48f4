"""``ringdist doctor``: finds by name what would make a job fail or slow, with its cure."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch_ringdist import _address
from torch_ringdist._doctor_host import Facts, Finding, examine
from torch_ringdist._doctor_links import Probe
from torch_ringdist._doctor_remote import (
    ANSWER,
    ON_HOST,
    Host,
    HostError,
    LocalHost,
    Part,
    ShellHost,
    StoreHost,
    end_all,
    place_of_this,
    serve,
    serve_store,
)
from torch_ringdist._doctor_report import HostFinding, Link, Report
from torch_ringdist._errors import CommandError
from torch_ringdist._launch.hosts import parse_host
from torch_ringdist._printable import escaped

_DESCRIPTION = """\
Checks this host, or several hosts and the links between them, for what would make a job of ringdist
fail or slow. It names each problem, with its cure. The exit status is 1 if a job would fail."""

_EXAMPLES = """\
examples:
  ringdist doctor --ranks 8
      This host alone, for eight ranks: package, UCX, descriptors, memory, cores, interfaces.

  ringdist doctor --hosts a,b,c --ranks 8
      Three hosts, which --rsh reaches (ssh): the same on each, versions, clocks, and the ports and
      packet sizes of each pair, both ways. The package is at the same place on all.

  torchrun --nnodes 3 --nproc-per-node 8 ... -m torch_ringdist doctor
      The same for the hosts of a job, by torchrun, srun, mpirun, or any launcher that sets RANK,
      WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

  ringdist doctor --hosts a,b,c --links
      Also the latency and the rate of each pair, one after the other.
"""

if TYPE_CHECKING:
    from torch_ringdist.horovod._launch_info import LaunchInfo

_START = 60.0  # seconds for the ranks of a job to meet
_MEGABYTES = 16  # sent over a link to measure it
_CLOCKS = 1.0  # seconds that clocks may differ by


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    add = parser.add_argument
    add("--hosts", metavar="A,B", default="", help="the hosts of the job; default: this one")
    add("--ranks", type=int, metavar="N", help="ranks on each host; default: LOCAL_WORLD_SIZE or 1")
    add("--rsh", default="ssh", help="remote shell, which gets the host and sh; default: ssh")
    add("--store", metavar="HOST:PORT", default="", help="a store that should answer, too")
    add("--links", action="store_true", help="measure latency and rate of each pair of hosts")
    add("--json", action="store_true", help="print JSON instead of text")
    add(ON_HOST, action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Prints what is wrong. Returns 1 if a job would fail by it.

    Raises:
        ValueError: an option is not accepted.
        CommandError: the ranks of the job do not meet.
    """
    if args.on_host:
        return serve(sys.stdin, sys.stdout)
    ranks = args.ranks
    if ranks is None:
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if ranks < 1:
        raise ValueError(f"--ranks: expected 1 or more, got {ranks}")
    what = "--hosts: expected HOST,HOST"
    hosts = [parse_host(one, what)[0] for one in args.hosts.split(",") if one.strip()]
    if len(set(hosts)) < len(hosts):
        raise ValueError(f"--hosts: each host once, got {args.hosts}")
    if not (rsh := shlex.split(args.rsh)):
        raise ValueError("--rsh: expected a command, as ssh")
    job = Job(ranks, _store(args.store), args.links)
    if hosts:
        report = _by_shell(job, hosts, rsh)
    elif (launched := _launched()) is not None:
        found = _in_job(job, launched, args.ranks)
        if found is None:
            return 0
        report = found
    else:
        facts = examine(ranks, 1, job.store)
        report = Report([facts], [HostFinding(facts.host, one) for one in facts.findings])
    text = json.dumps(report.as_json(), indent=2) if args.json else escaped(report.text())
    print(text)
    return 1 if report.fails else 0


# Returns how this rank was launched, or None if it is alone.
def _launched() -> LaunchInfo | None:
    sizes = {"HOROVOD_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"} & {*os.environ}
    if sizes == {"SLURM_NTASKS"} and "SLURM_STEP_ID" not in os.environ:  # a script of sbatch
        return None
    if not sizes:
        return None
    from torch_ringdist.horovod._launch_info import launched

    found = launched()
    if found.size == 1 and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError("WORLD_SIZE is set, and RANK is not: set both, as for the ranks of a job")
    return found if found.size > 1 else None


def _store(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    if (place := _address.parse_store(text)) is None:
        raise ValueError(f"--store: expected HOST:PORT, got {text!r}")
    return place[:2]


@dataclass(frozen=True)
class Job:
    """The job that is checked: ranks of each host, the store if one should answer, and if links
    are measured."""

    ranks: int
    store: tuple[str, int] | None
    measures: bool


def _by_shell(job: Job, names: Sequence[str], rsh: Sequence[str]) -> Report:
    started, problems = list[ShellHost](), list[HostFinding]()

    def try_it(host: str, error: HostError) -> None:
        words = shlex.join([*rsh, host, sys.executable, "-m", "torch_ringdist", "doctor"])
        finding = Finding("remote shell", f"the check does not run there: {error}", f"try: {words}")
        problems.append(HostFinding(host, finding))

    try:
        for name in names:
            try:
                started.append(ShellHost(name, rsh))
            except HostError as error:
                try_it(name, error)
        ready = list[ShellHost]()
        deadline = time.monotonic() + _START
        for host in started:
            try:
                host.wait(deadline)
                ready.append(host)
            except HostError as error:
                try_it(host.name, error)
        report = check(job, ready, len(names))
        report.findings[:0] = problems
        return report
    finally:
        end_all(started)


# ---- in a job


def _in_job(job: Job, launched: LaunchInfo, ranks: int | None) -> Report | None:
    """Returns the report on rank 0, and None on the others."""
    import torch.distributed as dist

    rank, size = launched.rank, launched.size
    os.environ.setdefault("MASTER_ADDR", launched.address)
    os.environ.setdefault("MASTER_PORT", str(launched.port))
    try:
        limit = timedelta(seconds=_START)
        store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=limit))
        store.set(f"ringdist/doctor/place/{rank}", place_of_this())
        places = list[str]()
        for other in range(size):
            places.append(store.get(f"ringdist/doctor/place/{other}").decode())
    except (RuntimeError, ValueError) as error:
        raise CommandError(f"the ranks of the job do not meet: {error}") from None
    store.set_timeout(timedelta(seconds=ANSWER))
    firsts = {place: places.index(place) for place in dict.fromkeys(places)}
    if rank == 0:
        hosts = [StoreHost(store, place.split(" ")[0], one) for place, one in firsts.items()]
        most = ranks or max(map(places.count, places))
        part = Part()
        try:
            parts: list[Host] = [LocalHost(hosts[0].name, part.answer), *hosts[1:]]
            return check(replace(job, ranks=most), parts, len(parts), os.environ["MASTER_ADDR"])
        finally:
            for host in hosts:
                host.end()
            part.close()
    if rank in firsts.values():
        serve_store(store, rank)
    return None


# ---- all hosts


@dataclass(frozen=True)
class _Reached:
    """A host that answers: its address, the ports and tokens at which it listens, and the number of
    seconds by which its clock differs at least."""

    host: Host
    name: str
    facts: Facts
    clock_offset: float
    address: str
    ends: list[dict[str, Any]]


def check(job: Job, hosts: Sequence[Host], planned: int, route_target: str = "") -> Report:
    """Checks hosts and the links between them.

    Args:
        planned: number of hosts of the job, with those that could not be started.
        route_target: the address to which each host looks for its route. By default it is another
            host.
    """
    report = Report([])
    reached = list[_Reached]()
    names = [one.name for one in hosts]
    alive = list[tuple[Host, float]]()  # with the offsets of their clocks
    for host in hosts:
        try:
            alive.append((host, _clock_offset(host)))
        except HostError as error:
            report.findings.append(_silent(host.name, error))
    for host, _ in alive:
        others = [route_target] if route_target else [one for one in names if one != host.name]
        others = [one.rpartition("@")[2] for one in (*others, host.name)]
        about = {"ranks": job.ranks, "hosts": planned, "store": job.store}
        host.send({"examine": {**about, "route_target": others[0]}})
    for host, offset in alive:
        try:
            answer = host.receive()
            with _parsing():
                found = Facts.of_json(answer["facts"])
                address, problem, ends = (answer[key] for key in ("address", "problem", "ends"))
        except HostError as error:
            report.findings.append(_silent(host.name, error))
            continue
        name = host.name if names.count(host.name) == 1 else f"{host.name} ({address})"
        reached.append(_Reached(host, name, found, offset, address, ends))
        report.hosts.append(found)
        report.findings += [HostFinding(name, one) for one in found.findings]
        if problem:
            cure = "look at its routes (ip route) and at the programs that listen (ss -ltnp)"
            report.findings.append(HostFinding(name, Finding("network", problem, cure)))
    report.findings += _differences(reached)
    _probe_all(job, reached, report)
    return report


def _silent(name: str, error: HostError) -> HostFinding:
    cure = "run the check on that host alone, and compare the versions of torch_ringdist"
    return HostFinding(name, Finding("answer", f"{error}", cure))


# Raises HostError if the answer of a host is malformed.
@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HostError(f"its answer cannot be read ({error!r})") from None


# Returns the seconds by which the clock of a host differs from this one at least. Raises HostError.
def _clock_offset(host: Host) -> float:
    began = time.time()
    host.send({"clock": 1})
    answer = host.receive()
    with _parsing():
        there = float(answer["clock"])
    return max(0.0, began - there, there - time.time())


# In each round every host probes another one. Rates are measured one after the other.
def _probe_all(job: Job, hosts: Sequence[_Reached], report: Report) -> None:
    failed = set[str]()
    for distance in range(1, len(hosts)):
        pairs = [(one, hosts[(i + distance) % len(hosts)]) for i, one in enumerate(hosts)]
        pairs = [(one, to) for one, to in pairs if to.address and not {one.name, to.name} & failed]
        for begun in [[pair] for pair in pairs] if job.measures else [pairs]:
            for source, target in begun:
                ends = [{**end, "address": target.address} for end in target.ends]
                for end in ends[:1]:
                    end["megabytes"] = _MEGABYTES if job.measures else 0
                source.host.send({"probe": ends})
            for source, target in begun:
                try:
                    answer = source.host.receive()
                    with _parsing():
                        probes = [Probe(**one) for one in answer["probes"]]
                except HostError as error:
                    failed.add(source.name)
                    report.findings.append(_silent(source.name, error))
                    continue
                report.links += [Link(source.name, target.name, one) for one in probes[:1]]
                for probe, end in zip(probes, target.ends, strict=False):
                    where = f"{target.address}, port {end['port']}"
                    if finding := _finding_of(probe, where):
                        name = f"{source.name} to {target.name}"
                        report.findings.append(HostFinding(name, finding))
                        break


def _finding_of(probe: Probe, where: str) -> Finding | None:
    if not probe.failure:
        return None
    if probe.failure == "large":
        return Finding(
            "packet size",
            f"small messages arrive at {where}, and large ones do not: packets are lost that are "
            "longer than the path carries",
            "give all interfaces on the way the same MTU (ip link set DEV mtu 1500), and let ICMP "
            "through",
        )
    return Finding(
        "port",
        f"{where}: {_FAILURES.get(probe.failure, probe.failure)}",
        "let the hosts reach each other, or open ranges of ports and name them: "
        "RINGDIST_PORT=47000-47999, and for UCX UCX_TCP_PORT_RANGE=48000-48999",
    )


_FAILURES = {
    "dropped": "nothing answers: a firewall drops it, or it is another network",
    "refused": "the connection is refused: a firewall rejects it",
    "closed": "something else listens there, or a firewall ends the connection",
}


def _differences(hosts: Sequence[_Reached]) -> list[HostFinding]:
    out = []
    for name in sorted({key for one in hosts for key in one.facts.versions}):
        by_version: dict[str, list[str]] = {}
        for one in hosts:
            version = one.facts.versions.get(name, "missing")
            by_version.setdefault(version, []).append(one.name)
        if len(by_version) > 1:
            text = "; ".join(f"{version} on {', '.join(on)}" for version, on in by_version.items())
            cure, fails = f"install the same {name}", name != "python"
            out.append(
                HostFinding("hosts differ", Finding(f"version of {name}", text, cure, fails))
            )
    for one in hosts:
        if one.clock_offset > _CLOCKS:
            text = f"its clock and this one differ by {one.clock_offset:.1f} s"
            cure = "run chrony or another NTP client: certificates and the times in logs need it"
            out.append(HostFinding(one.name, Finding("clock", text, cure, fails=False)))
    sizes = {
        one.name: interface.mtu
        for one in hosts
        for interface in one.facts.interfaces
        if interface.address == one.address
    }
    if len(set(sizes.values())) > 1:
        text = ", ".join(f"{size} on {host}" for host, size in sizes.items())
        cure = "give all the same: ip link set DEV mtu 1500"
        out.append(HostFinding("hosts differ", Finding("MTU", text, cure, fails=False)))
    return out
