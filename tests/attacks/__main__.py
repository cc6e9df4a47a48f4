"""Attack a training job from the network, and measure what that costs it.

    python -m tests.attacks [--quick] [--only WORDS]

An elastic job trains on two hosts, which are network namespaces. The attacker is on a third one and
has no rank, no key and no secret. For each attack the table shows how much memory and how many
descriptors the worst rank has more, and the rate of steps beside that without an attack. An attack
that exceeds a bound, ends a rank or changes the members is a failure, and the status is 1. A second
job has a key: there the logs must have refusals with address and reason, at most one a second and
rank. It needs root, and iproute2.

Attacks with the knowledge of a member are tests of their parts, in tests/cpp/control, membership
and engine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from benchmarks.net import hosts as net
from tests.attacks.strangers import ATTACKS, HANDSHAKES
from tests.chaos import digits
from tests.chaos.job_key import write_key
from tests.chaos.launched import Launched
from tests.chaos.records import committed

ROOT = Path(__file__).resolve().parents[2]
JOIN = "join requests that lead nowhere"
# Limits of the cost of an attack: bytes and descriptors of a rank. The rates are the part of the
# steps that must be left.
MEMORY, DESCRIPTORS, RATE = 16 << 20, 300, 0.8
RATE_WITH_JOINS = 0.95
# Every three seconds a newcomer with an address that no member can reach wants to join.
KNOCKS = """
import os, sys, time, datetime, torch.distributed as dist, torch_ringdist
host, port = sys.argv[1].rsplit(":", 1)
until, knocks = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    if os.fork() == 0:
        try:
            store = dist.TCPStore(host, int(port), is_master=False)
            torch_ringdist.join(store=store, timeout=datetime.timedelta(seconds=2))
        finally:
            os._exit(0)
    knocks += 1
    time.sleep(3)
print(knocks, "join requests of processes that nobody reaches")
"""


class Job:
    """An elastic training on hosts 0 and 1."""

    def __init__(
        self, folder: Path, hosts: net.Hosts, stack: contextlib.ExitStack, key: Path | None
    ) -> None:
        self._steps = folder / "steps"
        script = [*digits.SCRIPT, f"--log={self._steps}", "--pause=0.02", "--epochs=1000000"]
        script.append(f"--checkpoint={folder / 'saved'}")
        self.store = f"{hosts.address(0)}:29500"
        options = ["--min-ranks=2", "--max-ranks=3", f"--rdzv={self.store}"]
        variables = {
            "RINGDIST_TRANSPORT": "shm,tcp"
        }  # UCX has a port of its own that is open to all
        if key:
            variables["RINGDIST_KEY_FILE"] = str(key)
        self._launched = [
            stack.enter_context(
                Launched(folder / f"host-{host}", options, script, variables, hosts.enter(host))
            )
            for host in range(2)
        ]
        self._launched[0].wait_for(lambda: self.steps() > 20, 90.0)
        self.pids = [pid for one in self._launched for pid in one.pids()]
        self.ports = [
            f"{hosts.address(host)}:{port}" for host in range(2) for port in self._ports(host)
        ]

    def _ports(self, host: int) -> list[int]:
        """Returns the ports at which the ranks of a host listen."""
        found = []
        for pid in self._launched[host].pids():
            folder = Path(f"/proc/{pid}")
            sockets = {os.readlink(fd) for fd in (folder / "fd").iterdir() if fd.is_symlink()}
            for line in (folder / "net/tcp").read_text().splitlines()[1:]:
                row = line.split()
                if row[3] == "0A" and f"socket:[{row[9]}]" in sockets:
                    found.append(int(row[1].split(":")[1], 16))
        return found

    def steps(self) -> int:
        return len(committed(self._steps))

    def members(self) -> dict[int, int]:
        return {**self._launched[0].members(), **self._launched[1].members()}

    def memory(self) -> dict[int, int]:
        """Returns the resident bytes of each rank."""
        texts = {pid: Path(f"/proc/{pid}/status").read_text() for pid in self.pids}
        return {
            pid: int(re.search(r"VmRSS:\s+(\d+)", text)[1]) << 10 for pid, text in texts.items()
        }

    def descriptors(self) -> dict[int, int]:
        return {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids}

    def output(self) -> str:
        return "\n".join(one.output() for one in self._launched)

    def refusals(self) -> int:
        """Returns how many refused connections the logs have, with address and reason."""
        return len(re.findall(r"refused a connection from [0-9.]+:\d+: \w", self.output()))


@contextlib.contextmanager
def _attack(name: str, job: Job, hosts: net.Hosts, seconds: float) -> Iterator[subprocess.Popen]:
    if name == JOIN:
        words = ["-c", KNOCKS, job.store, str(seconds)]
    else:
        words = ["-m", "tests.attacks.strangers", name, ",".join(job.ports), str(seconds)]
    # Nobody has a route to this interface.
    variables = {**os.environ, "RINGDIST_SOCKET_IFNAME": "inside", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*hosts.enter(2), sys.executable, *words],
        env=variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure(
    name: str, job: Job, hosts: net.Hosts, seconds: float, judges_rate: bool
) -> tuple[str, list[str]]:
    """Returns the row of an attack, and what is wrong with it."""
    quiet = _rate(job, seconds)
    memory, descriptors = job.memory(), job.descriptors()
    most_memory = most_descriptors = 0
    with _attack(name, job, hosts, seconds) as process:
        first, begin = job.steps(), time.monotonic()
        while process.poll() is None and time.monotonic() < begin + seconds + 60:
            time.sleep(0.2)
            grown = [now - memory[pid] for pid, now in job.memory().items()]
            opened = [now - descriptors[pid] for pid, now in job.descriptors().items()]
            most_memory = max(most_memory, *grown)
            most_descriptors = max(most_descriptors, *opened)
        rate = (job.steps() - first) / (time.monotonic() - begin) / max(quiet, 0.1)
        done = (process.stdout.read() if process.poll() is not None else "").strip()
    wrong = []
    if not done:
        wrong.append("the attack itself failed")
    if most_memory > MEMORY:
        wrong.append("memory")
    if most_descriptors > DESCRIPTORS:
        wrong.append("descriptors")
    if judges_rate and rate < (RATE_WITH_JOINS if name == JOIN else RATE):
        wrong.append("rate of steps")
    row = (
        f"{name:34} {most_memory / (1 << 20):6.1f} MiB {most_descriptors:5} descriptors "
        f"{rate:5.2f} of the steps   {done}"
    )
    return row, wrong


def _rate(job: Job, seconds: float) -> float:
    first, begin = job.steps(), time.monotonic()
    time.sleep(seconds)
    return (job.steps() - first) / (time.monotonic() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 seconds of each attack, not 30, and one of the job with a key; rates of steps are "
        "shown, and not judged",
    )
    parser.add_argument(
        "--key",
        choices=("with", "without"),
        help="only the job that has a key, or only the one that has none",
    )
    parser.add_argument("--only", default="", help="attacks whose names have these words")
    options = parser.parse_args()
    if reason := net.why_not():
        print(f"left out: {reason}")
        return 0
    names = [name for name in (*ATTACKS, JOIN) if options.only in name]
    if not names:
        parser.error(f"--only {options.only!r}: expected words of one of {[*ATTACKS, JOIN]}")
    failed = []
    for has_key in (False, True):
        if options.key == ("without" if has_key else "with"):
            continue
        if has_key and options.quick and HANDSHAKES in names:
            names = [HANDSHAKES]
        failed += attack_job(names, has_key, options.quick)
    print(f"{len(failed)} failures")
    return 1 if failed else 0


def attack_job(names: list[str], has_key: bool, quick: bool) -> list[str]:
    """Starts a job and attacks it. Prints a row for each attack, and returns what was wrong."""
    print(f"a job with{'' if has_key else 'out'} a key:", flush=True)
    failed = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ringdist-attacks-")))
        key = write_key(folder / "job.key") if has_key else None
        hosts = stack.enter_context(net.Hosts(3))
        inside = [*hosts.enter(2), "ip"]
        for words in (
            "link add inside type veth peer name nowhere",
            "link set inside up",
            "link set nowhere up",
            "address add 192.0.2.9/32 dev inside",
        ):
            net.call(*inside, *words.split())
        job = Job(folder, hosts, stack, key)
        before = job.members()
        for name in tqdm(names, unit="attack", disable=not sys.stderr.isatty()):
            seconds = 3.0 if quick else 30.0
            logged, begin = job.refusals(), time.monotonic()
            row, wrong = measure(name, job, hosts, seconds, judges_rate=not quick)
            logged = job.refusals() - logged
            if has_key:
                row += f"   {logged} refusals in the logs"
                most = (time.monotonic() - begin + 20) * len(job.pids)
                if not 0 < logged <= most and name != JOIN:
                    wrong.append("refusals")
            tqdm.write(row + (f"   FAILED: {', '.join(wrong)}" if wrong else ""))
            failed += wrong
        if job.members() != before:
            failed.append("members")
            print(f"FAILED: the members were {before}, and are {job.members()}\n{job.output()}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
