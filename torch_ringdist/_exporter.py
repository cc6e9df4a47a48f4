"""``ringdist exporter``: metrics of the ranks of this host, for Prometheus."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch_ringdist import _snapshot
from torch_ringdist._dump import WITH_STATISTICS, DumpError
from torch_ringdist._printable import escaped
from torch_ringdist._snapshot import GroupState, Process
from torch_ringdist._statistics import Histogram, Operations

_DESCRIPTION = """\
Metrics of this user's ranks on this machine, for Prometheus; as root, of all users. Run one per
host. It opens no port in a training process, and imports no torch, except for jobs with a key."""

_EXAMPLES = """\
examples:
  ringdist exporter                          at http://HOST:9464/metrics, until Ctrl-C
  ringdist exporter --address 127.0.0.1      for a Prometheus on this machine alone
  ringdist exporter --textfile /var/lib/prometheus/node-exporter
      Write the file ringdist.prom there every 15 s, for node_exporter's textfile collector.
"""

_TIMEOUT = 1.0  # seconds for the answer of a process
_FILE = "ringdist.prom"
# A rank has at most about 300 series at 32 ranks. The first pairs of operation and codec that a
# process has used have series of their own, and so have these ends of buckets.
_MOST_PAIRS = 8
_MOST_REPORTED = 100
_BUCKETS = range(4, 24, 2)
_OTHERS = ("others", "")
_RANK = ("rank", "pid")
_OPERATION = (*_RANK, "operation", "codec")
_PEER = (*_RANK, "peer", "transport")

_Labels = tuple[str, ...]
_Sums = defaultdict[_Labels, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    add = parser.add_argument
    add("--port", type=int, default=9464, help="listen at this TCP port (default 9464; 0: any)")
    add("--address", default="0.0.0.0", help="listen at this address only (default: all of IPv4)")
    add("--textfile", type=Path, metavar="DIR", help=f"write DIR/{_FILE} instead of listening")
    add("--interval", type=float, default=15, metavar="S", help="seconds between files (15)")


def run(args: argparse.Namespace) -> None:
    """Serves metrics, or writes them to a file again and again, until it is interrupted.

    Raises:
        ImportError: prometheus-client is not installed.
        OSError: the port is in use, or the file cannot be written.
        ValueError: a value that is not accepted.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
    except ImportError:
        raise ImportError(
            "it needs prometheus-client: pip install 'torch-ringdist[metrics]'"
        ) from None
    if not 0 <= args.port <= 65535:
        raise ValueError(f"--port: expected 0 to 65535, got {args.port}")
    if not 1 <= args.interval <= 86400:
        raise ValueError(f"--interval: expected 1 to 86400 seconds, got {args.interval:g}")
    if args.textfile is not None and not args.textfile.is_dir():
        raise ValueError(f"--textfile: {args.textfile} is no folder")
    registry = CollectorRegistry()
    registry.register(RankCollector())
    if args.textfile is not None:
        _write(args.textfile / _FILE, args.interval, partial(write_to_textfile, registry=registry))
    try:
        server, thread = start_http_server(args.port, args.address, registry)
    except OSError as error:
        raise OSError(
            f"cannot listen at {args.address}:{args.port}: {error.strerror}; choose another --port "
            "or an --address of this host"
        ) from None
    print(
        f"metrics at http://{args.address}:{server.server_port}/metrics, until Ctrl-C",
        file=sys.stderr,
    )
    thread.join()


# Writes the file again and again. It is removed at the end, or its last values would be read on.
def _write(file: Path, interval: float, write: Callable[[str], None]) -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    write(str(file))
    print(f"{file}: written every {interval:g} s, until Ctrl-C", file=sys.stderr)
    try:
        while True:
            time.sleep(interval)
            try:
                write(str(file))
            except OSError as error:
                print(f"{file}: {error.strerror}; next in {interval:g} s", file=sys.stderr)
    finally:
        file.unlink(missing_ok=True)


class RankCollector:
    """Reads the state of all ranks of this host for each scrape, as prometheus_client's collectors
    do. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By context: labels of a process, and the pairs of operation and codec with series of
        # their own. A process that does not answer keeps its labels.
        self._labels: dict[str, _Labels] = {}
        self._pairs: dict[str, list[_Labels]] = {}
        # The highest values so far, as sums of rounded figures may fall by a little.
        self._highest: dict[tuple[str, _Labels], float] = {}
        self._reported = set[str]()  # problems that were printed

    def describe(self) -> Iterable[Any]:
        """Returns nothing, so that a registry reads no state when it gets this object."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yields metric families of prometheus_client."""
        with self._lock:
            up: dict[_Labels, float] = {}
            answered = []
            found = _snapshot.of_host(_TIMEOUT, WITH_STATISTICS)
            for pid, context, process in found:
                if isinstance(process, DumpError):
                    self._report(str(process))
                    up[self._labels.get(context, ("", str(pid)))] = 0.0
                    continue
                if (group := _largest(process)) is not None:
                    self._labels[context] = (str(group.rank), str(pid))
                if labels := self._labels.get(context):
                    up[labels] = float(process.state != "busy")
                    answered.append((labels, process))
            self._forget({context for _, context, _ in found}, set(up))
            yield from self._families(up, answered)

    def _forget(self, contexts: set[str], ranks: set[_Labels]) -> None:
        for known in (self._labels, self._pairs):
            for context in known.keys() - contexts:
                del known[context]
        for series in [one for one in self._highest if one[1][: len(_RANK)] not in ranks]:
            del self._highest[series]

    def _report(self, problem: str) -> None:
        if problem not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(problem)
            print(f"ringdist exporter: {escaped(problem)}", file=sys.stderr)

    # Returns the value of a counter, which never falls.
    def _counted(self, name: str, row: _Labels, value: float) -> float:
        highest = max(value, self._highest.get((name, row), 0.0))
        self._highest[name, row] = highest
        return highest

    def _families(
        self, up: dict[_Labels, float], answered: list[tuple[_Labels, Process]]
    ) -> Iterator[Any]:
        yield _gauge("up", "1 if the rank answers; 0 if it is stopped or hangs.", _RANK, up)
        waits = {
            labels: max((one.age for one in process.groups if one.state == "waits"), default=0.0)
            for labels, process in answered
            if process.state != "busy"
        }
        text = "Time since an operation of the rank has made progress, while it waits for others."
        yield _gauge("waiting_seconds", text, _RANK, waits)
        late, rates = dict[_Labels, float](), dict[_Labels, float]()
        for labels, process in answered:
            names = {one.id: one.name for one in process.groups}
            for one in process.stragglers:
                where = (names.get(one.group, one.group), str(one.rank), one.cause)
                late[labels + where] = one.share
            for link in process.slow_links:
                ends = (f"{link.host} {link.address}", f"{link.to_host} {link.to_address}".strip())
                rates[labels + ends] = link.rate
        text = "Part of the operations that a straggler calls later than the others."
        yield _gauge("straggler_late_ratio", text, (*_RANK, "group", "straggler", "cause"), late)
        text = "Rate of a link between hosts, or of all links of a host, that is slow."
        yield _gauge("slow_link_bytes_per_second", text, (*_RANK, "sender", "receiver"), rates)
        yield from self._operation_families(answered)
        yield from self._peer_families(answered)

    # Returns the labels operation and codec of a row.
    def _pair(self, context: str, op: Operations) -> _Labels:
        pairs = self._pairs.setdefault(context, [])
        pair = (op.operation, op.codec)
        if pair not in pairs and len(pairs) < _MOST_PAIRS:
            pairs.append(pair)
        return pair if pair in pairs else _OTHERS

    def _counters(self, name: str, text: str, labels: _Labels, rows: _Sums) -> Any:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(f"ringdist_{name}", text, labels=labels)
        for row, value in rows.items():
            family.add_metric(_texts(row), self._counted(name, row, value))
        return family

    def _operation_families(self, answered: Iterable[tuple[_Labels, Process]]) -> Iterator[Any]:
        from prometheus_client.core import HistogramMetricFamily

        failures, data, waits = _Sums(float), _Sums(float), _Sums(float)
        durations = defaultdict[_Labels, Histogram](Histogram)
        for labels, process in answered:
            for op in process.statistics.operations if process.statistics else ():
                key = labels + self._pair(process.context, op)
                failures[key] += op.failed
                data[key] += op.bytes
                waits[key] += op.wait.sum
                durations[key] += op.duration
        text = "Operations that ended with an error."
        yield self._counters("operation_failures_total", text, _OPERATION, failures)
        text = "Input or output of operations that succeeded, whichever is larger."
        yield self._counters("operation_bytes_total", text, _OPERATION, data)
        text = "Longest time without progress, of each operation, summed."
        yield self._counters("operation_wait_seconds_total", text, _OPERATION, waits)
        name, text = "operation_duration_seconds", "Time of operations that succeeded."
        family = HistogramMetricFamily(f"ringdist_{name}", text, labels=_OPERATION)
        for row, one in durations.items():
            ends = [(str(2**i * 1024 / 1e9), sum(one.counts[: i + 1])) for i in _BUCKETS]
            total = self._counted(name, row, one.sum)
            family.add_metric(_texts(row), [*ends, ("+Inf", sum(one.counts))], total)
        yield family

    def _peer_families(self, answered: Iterable[tuple[_Labels, Process]]) -> Iterator[Any]:
        figures = {
            "bytes_sent": ("peer_sent_bytes_total", "Data sent to a process, without headers."),
            "bytes_received": ("peer_received_bytes_total", "Data received from it."),
            "sending": ("peer_sending_seconds_total", "Time with sends to another host in flight."),
        }
        rows = {figure: _Sums(float) for figure in figures}
        for labels, process in answered:
            for peer in process.statistics.peers if process.statistics else ():
                for figure, counter in rows.items():
                    counter[(*labels, peer.where, peer.transport)] += getattr(peer, figure)
        for figure, (name, text) in figures.items():
            yield self._counters(name, text, _PEER, rows[figure])


# Returns the group of which the rank is shown, or None if the process has answered without one.
def _largest(process: Process) -> GroupState | None:
    return max(process.groups, key=lambda one: (one.size, one.id), default=None)


def _gauge(name: str, text: str, labels: _Labels, rows: dict[_Labels, float]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"ringdist_{name}", text, labels=labels)
    for row, value in rows.items():
        family.add_metric(_texts(row), value)
    return family


# Other processes choose some texts, which may have half of a character of two.
def _texts(labels: _Labels) -> list[str]:
    return [one.encode(errors="replace").decode() for one in labels]
