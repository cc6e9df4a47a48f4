"""``ringdist doctor``: finds by name what would make a job fail or slow, with its cure."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from torch_ringdist import _address
from torch_ringdist import _doctor_links as links
from torch_ringdist._doctor_host import Facts, Finding, examine
from torch_ringdist._doctor_links import Probe
from torch_ringdist._doctor_remote import (
    ANSWER,
    ON_HOST,
    Here,
    Host,
    HostError,
    ShellHost,
    StoreHost,
    place_of_this,
    serve,
    serve_store,
)
from torch_ringdist._errors import CommandError
from torch_ringdist._printable import escaped
from torch_ringdist._units import counted, format_rate, format_seconds, table

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
      The same for the hosts of a job, by any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and
      MASTER_PORT.

  ringdist doctor --hosts a,b,c --links
      Also the latency and the rate of each pair, one after the other.
"""

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
    hosts = [one.strip() for one in args.hosts.split(",") if one.strip()]
    if len(set(hosts)) < len(hosts):
        raise ValueError(f"--hosts: each host once, got {args.hosts}")
    job = Job(ranks, _store(args.store), args.links)
    if hosts:
        report = _by_shell(job, hosts, shlex.split(args.rsh))
    elif int(os.environ.get("WORLD_SIZE", 1)) > 1:
        found = _in_job(job, args.ranks)
        if found is None:
            return 0
        report = found
    else:
        facts = examine(ranks, 1, job.store)
        report = Report([facts], [Named(facts.host, one) for one in facts.findings])
    text = json.dumps(report.as_json(), indent=2) if args.json else escaped(report.text())
    print(text)
    return 1 if report.fails else 0


def _store(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    if (place := _address.parse(text)) is None:
        raise ValueError(f"--store: expected HOST:PORT, got {text!r}")
    return place


@dataclass(frozen=True)
class Job:
    """The job that is checked: ranks of each host, the store if one should answer, and if links
    are measured."""

    ranks: int
    store: tuple[str, int] | None
    measures: bool


@dataclass(frozen=True)
class Named:
    """A finding and the host, or pair of hosts, that it is about."""

    host: str
    finding: Finding


@dataclass(frozen=True)
class Link:
    """The probe from one host to another."""

    source: str
    target: str
    probe: Probe


@dataclass
class Report:
    """All findings, hosts and links."""

    hosts: list[Facts]
    findings: list[Named] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        return any(one.finding.fails for one in self.findings)

    def text(self) -> str:
        lines = []
        where: dict[Finding, list[str]] = {}
        for one in sorted(self.findings, key=lambda one: not one.finding.fails):
            where.setdefault(one.finding, []).append(one.host)
        for found, hosts in where.items():
            kind = "fails" if found.fails else "warning"
            lines.append(f"{kind}: {found.check}: {', '.join(hosts)}: {found.problem}")
            lines += ["    " + line for line in found.cure.splitlines()]
        measured = [one for one in self.links if one.probe.rate]
        if measured:
            rows = [("from", "to", "latency", "rate")]
            for link in measured:
                latency, rate = link.probe.latency, 8 * link.probe.rate
                rows.append((link.source, link.target, format_seconds(latency), format_rate(rate)))
            lines += ["", *table(rows), ""]
        fails = sum(one.finding.fails for one in self.findings)
        count = counted(len(self.hosts), "host")
        pairs = f", {counted(len(self.links), 'link')}" if self.links else ""
        end = f"{counted(fails, 'problem')} by which a job would fail" if fails else "healthy"
        return "\n".join([*lines, f"{count}{pairs}: {end}"])

    def as_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "fails": self.fails,
            "hosts": [asdict(one) for one in self.hosts],
            "findings": [{"host": one.host, **asdict(one.finding)} for one in self.findings],
            "links": [asdict(one) for one in self.links],
        }


def _by_shell(job: Job, names: Sequence[str], rsh: Sequence[str]) -> Report:
    started, problems = list[ShellHost](), list[Named]()
    try:
        for name in names:
            try:
                started.append(ShellHost(name, rsh))
            except HostError as error:
                problems.append(_unreachable(name, error))
        ready = list[ShellHost]()
        for host in started:
            try:
                host.wait()
                ready.append(host)
            except HostError as error:
                problems.append(_unreachable(host.name, error))
        report = check(job, ready, len(names))
        report.findings[:0] = problems
        return report
    finally:
        for host in started:
            host.end()


def _unreachable(name: str, error: HostError) -> Named:
    return Named(
        name,
        Finding(
            "remote shell",
            f"the check does not run there: {error}",
            f"try it by hand: ssh {name} {sys.executable} -m torch_ringdist doctor",
        ),
    )


# ---- in a job


def _in_job(job: Job, ranks: int | None) -> Report | None:
    """Returns the report on rank 0, and None on the others."""
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=_START)))
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
        listener = links.Listener()
        try:
            parts: list[Host] = [Here(hosts[0], listener), *hosts[1:]]
            return check(replace(job, ranks=most), parts, len(parts), os.environ["MASTER_ADDR"])
        finally:
            for host in hosts:
                host.end()
            listener.close()
    if rank in firsts.values():
        serve_store(store, rank)
    return None


# ---- all hosts


@dataclass(frozen=True)
class _Reached:
    """A host that answers. `place` has its address, port and token; `off` is the number of seconds
    by which its clock differs at least."""

    host: Host
    name: str
    facts: Facts
    off: float
    place: dict[str, Any]


def check(job: Job, hosts: Sequence[Host], planned: int, towards: str = "") -> Report:
    """Checks hosts and the links between them.

    Args:
        planned: number of hosts of the job, with those that could not be started.
        towards: an address to which each host looks for its way. By default it is another host.
    """
    report = Report([])
    reached = list[_Reached]()
    names = [one.name for one in hosts]
    for host in hosts:
        others = [towards] if towards else [one for one in names if one != host.name]
        about = {"ranks": job.ranks, "hosts": planned, "store": job.store}
        began = time.time()
        try:
            answer = host.ask({"examine": {**about, "towards": [*others, host.name][0]}})
        except HostError as error:
            report.findings.append(_unreachable(host.name, error))
            continue
        facts = Facts.of_json(answer.pop("facts"))
        off = max(0.0, began - facts.time, facts.time - time.time())
        name = host.name if names.count(host.name) == 1 else f"{host.name} ({answer['address']})"
        reached.append(_Reached(host, name, facts, off, answer))
        report.hosts.append(facts)
        report.findings += [Named(name, one) for one in facts.findings]
        if problem := answer.pop("problem"):
            finding = Finding("route", problem, "look at its routes: ip route")
            report.findings.append(Named(name, finding))
    report.findings += _differences(reached)
    for source in reached:
        for target in reached:
            if target is not source and target.place["address"]:
                _try(job, source, target, report)
    return report


def _try(job: Job, source: _Reached, target: _Reached, report: Report) -> None:
    what = {**target.place, "megabytes": _MEGABYTES if job.measures else 0}
    try:
        found = Probe(**source.host.ask({"probe": what}))
    except HostError as error:
        report.findings.append(_unreachable(source.name, error))
        return
    report.links.append(Link(source.name, target.name, found))
    where = f"{what['address']}, port {what['port']}"
    if found.failure == "large":
        finding = Finding(
            "packet size",
            f"small messages arrive at {where}, and large ones do not: packets are lost that are "
            "longer than the path carries",
            "give all interfaces on the way the same MTU (ip link set DEV mtu 1500), and let ICMP "
            "through",
        )
    elif found.failure:
        finding = Finding(
            "port",
            f"{where}: {_FAILURES.get(found.failure, found.failure)}",
            "let the hosts reach each other, or open a range of ports and name it: "
            "RINGDIST_PORT=47000-47999",
        )
    else:
        return
    report.findings.append(Named(f"{source.name} to {target.name}", finding))


_FAILURES = {
    "dropped": "nothing answers: a firewall drops it, or it is another network",
    "refused": "the connection is refused: a firewall rejects it",
    "closed": "something else listens there, or a firewall ends the connection",
}


def _differences(hosts: Sequence[_Reached]) -> list[Named]:
    out = []
    for name in sorted({key for one in hosts for key in one.facts.versions}):
        by_version: dict[str, list[str]] = {}
        for one in hosts:
            version = one.facts.versions.get(name, "missing")
            by_version.setdefault(version, []).append(one.name)
        if len(by_version) > 1:
            text = "; ".join(f"{version} on {', '.join(on)}" for version, on in by_version.items())
            cure, fails = f"install the same {name}", name != "python"
            out.append(Named("hosts differ", Finding(f"version of {name}", text, cure, fails)))
    for one in hosts:
        if one.off > _CLOCKS:
            text = f"its clock and this one differ by {one.off:.1f} s"
            cure = "run chrony or another NTP client: certificates and the times in logs need it"
            out.append(Named(one.name, Finding("clock", text, cure, fails=False)))
    sizes = {
        one.name: interface.mtu
        for one in hosts
        for interface in one.facts.interfaces
        if interface.address == one.place["address"]
    }
    if len(set(sizes.values())) > 1:
        text = ", ".join(f"{size} on {host}" for host, size in sizes.items())
        cure = "give all the same: ip link set DEV mtu 1500"
        out.append(Named("hosts differ", Finding("MTU", text, cure, fails=False)))
    return out
