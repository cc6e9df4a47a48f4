"""Compare the transport tcp, plain and by TLS, with UCX and gloo between hosts.

    python -m benchmarks.net.sockets                 all cases, a quarter of an hour
    python -m benchmarks.net.sockets --rounds 1      a look

A round starts the ranks of each case twice, with a key and without one, as the key is that of a
process. All else is interleaved in the same processes. In each round the rate of the cipher is
measured, too. It needs root, as `python -m benchmarks.net` does, and openssl(1).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.net import hosts as net
from benchmarks.net.hosts import Hosts
from benchmarks.net.job import Job
from benchmarks.net.layout import Layout
from benchmarks.net.sweep import CONGESTION, RunError, on_hosts
from benchmarks.report import MIB, duration, size_text
from tests.chaos.job_key import write_key

CIPHER = "aes-256-gcm"
CIPHER_BYTES = 16384  # most bytes in a record of TLS
TCP, UCX, GLOO, TLS = "ringdist@tcp", "ringdist@ucx", "gloo", "tls"
FIRST_HOSTS = 16


@dataclass(frozen=True)
class Case:
    """Operations of one size on hosts with one rank each."""

    hosts: int
    rate: str
    bytes: int
    operations: tuple[str, ...]
    seconds: float  # time of each operation and variant in a round

    @property
    def title(self) -> str:
        return f"{self.hosts} hosts, {self.rate}, {size_text(self.bytes)}"

    def job(self, variants: tuple[str, ...]) -> Job:
        layout = f"{self.hosts}x1"
        return Job(
            *(self.rate, CONGESTION, layout, self.bytes, self.operations, variants),
            *(self.seconds, 2, "sockets"),
        )


CASES = (
    Case(4, "1gbit", 16 * MIB, ("all_reduce",), 3.0),
    Case(2, "10gbit", 64 * MIB, ("all_reduce", "broadcast"), 3.0),
    Case(2, "none", 8, ("all_reduce",), 0.5),
)


@dataclass
class Samples:
    """Times of calls, and the CPU time of a rank for a call by round. All in nanoseconds."""

    times: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


Found = dict[tuple[Case, str, str], Samples]  # by case, operation and variant


def cipher_rate() -> float:
    """Returns bytes per nanosecond of one core. Raises OSError without openssl(1)."""
    words = ["openssl", "speed", "-mr", "-elapsed", "-seconds", "1", "-bytes", str(CIPHER_BYTES)]
    done = subprocess.run([*words, "-evp", CIPHER], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().rpartition(":")[2]) / 1e9


def measure(case: Case, logs: Path, key: Path | None, found: Found) -> None:
    """Adds one launch of a case. Raises RunError."""
    job = case.job((TCP,) if key else (TCP, UCX, GLOO))
    words = ["-m", "benchmarks.net.operations", "--job", job.text()]
    result = on_hosts(
        *(Hosts(case.hosts, case.rate), job.ranks, words, logs, case.title),
        variables=_variables(key),
    )
    for timed in result["timed"]:
        samples = found[case, timed["operation"], TLS if key else timed["variant"]]
        samples.times += timed["times"]
        samples.cpu.append(timed["cpu"] / len(timed["times"]) / case.hosts)


def measure_first(logs: Path, key: Path | None) -> float:
    """Returns the time of the first allreduce of 16 hosts. Raises RunError."""
    layout, words = Layout.parse(f"{FIRST_HOSTS}x1"), ["-m", "benchmarks.net.first_operation"]
    hosts = Hosts(FIRST_HOSTS)
    return float(on_hosts(hosts, layout, words, logs, "first", variables=_variables(key)))


def _variables(key: Path | None) -> dict[str, str]:
    return {"RINGDIST_KEY_FILE": str(key)} if key else {}


def table(found: Found) -> Iterator[str]:
    """Yields lines with the times of each variant."""
    line = "{:24} {:12} {:14} {:>6} {:>10} {:>10} {:>12}"
    yield line.format("case", "operation", "variant", "calls", "minimum", "median", "CPU of a rank")
    for (case, operation, variant), samples in found.items():
        numbers = (min(samples.times), statistics.median(samples.times), min(samples.cpu))
        shown = map(duration, numbers)
        yield line.format(case.title, operation, variant, len(samples.times), *shown)


def targets(found: Found, ciphers: list[float]) -> Iterator[str]:
    """Yields a line for each target: what was measured by minima and by medians, and the target."""
    slow, fast, small = CASES
    way = statistics.median(ciphers)

    def speed(case: Case, operation: str, ours: str, other: str) -> str:
        mine, its = (found[case, operation, one].times for one in (ours, other))
        return f"{min(its) / min(mine):.3f} {statistics.median(its) / statistics.median(mine):.3f}"

    def cpu(operation: str, ours: str, other: str) -> str:
        mine, its = (found[fast, operation, one].cpu for one in (ours, other))
        return f"{min(mine) / min(its):.2f} {statistics.median(mine) / statistics.median(its):.2f}"

    yield f"the cipher {CIPHER}: {max(ciphers):.2f} {way:.2f} GB/s (best, median)"
    for case, least in ((slow, 0.98), (fast, 0.95)):
        yield f"tcp by ucx, {case.title}: {speed(case, 'all_reduce', TCP, UCX)} (>= {least})"
    for case, least in ((slow, 0.97), (fast, 0.5)):
        yield f"tls by tcp, {case.title}: {speed(case, 'all_reduce', TLS, TCP)} (>= {least})"
    for operation in fast.operations:
        text = f"{operation}, {fast.title}"
        yield f"speed of tcp by ucx, {text}: {speed(fast, operation, TCP, UCX)} (>= 1)"
        yield f"CPU of tcp by gloo, {text}: {cpu(operation, TCP, GLOO)} (<= 1.0)"
        yield f"CPU of tcp by ucx, {text}: {cpu(operation, TCP, UCX)} (<= 0.7)"
    mine, plain = (found[fast, "all_reduce", one].cpu for one in (TLS, TCP))
    bound = 1.25 * 2 * fast.bytes / way
    more = [pick(mine) - pick(plain) for pick in (min, statistics.median)]
    yield f"CPU that tls adds, {fast.title}: {' '.join(map(duration, more))} (<= {duration(bound)})"
    mine, plain = (found[small, "all_reduce", one].times for one in (TLS, TCP))
    more = [pick(mine) - pick(plain) for pick in (min, statistics.median)]
    yield f"time that tls adds, {small.title}: {' '.join(map(duration, more))} (<= 20 us)"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4, help="launches of each case (default 4)")
    parser.add_argument("--logs", type=Path, default=Path("build/bench-sockets"))
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds: {args.rounds}: expected at least 1")
    if why := net.why_not():
        print(f"left out: {why}")
        return 0
    net.unwind_on_signals()
    found: Found = defaultdict(Samples)
    ciphers: list[float] = []
    firsts: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        file = write_key(Path(folder, "job.key"))
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
            ciphers.append(cipher_rate())
            keys = [None, file] if number % 2 == 0 else [file, None]
            try:
                for case in CASES:
                    for key in keys:
                        measure(case, args.logs, key, found)
                for key in keys:
                    firsts[key is not None].append(measure_first(args.logs, key))
            except RunError as error:
                print(f"{error}", file=sys.stderr)
                return 1
    print("\n".join(table(found)), "", *targets(found, ciphers), sep="\n")
    both = [pick(firsts[True]) / pick(firsts[False]) for pick in (min, statistics.median)]
    print(
        f"first 1 MiB allreduce of {FIRST_HOSTS} hosts, tls by tcp: {both[0]:.2f} {both[1]:.2f}"
        f" (<= 2), tcp {duration(min(firsts[False]))}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
