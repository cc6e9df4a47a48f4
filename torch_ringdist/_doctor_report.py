"""The report of ``ringdist doctor``, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from torch_ringdist._doctor_host import Facts, Finding
from torch_ringdist._doctor_links import Probe
from torch_ringdist._units import counted, format_rate, format_seconds, table


@dataclass(frozen=True)
class HostFinding:
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
    findings: list[HostFinding] = field(default_factory=list)
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
