"""Attack the encrypted connections of a job on their way, at random.

    python -m tests.relay --runs 1000 --seed 7

Three ranks with a key, on three hosts that are network namespaces, form a group and compute, again
and again. A relay between them flips bits of records, drops, repeats, reorders or truncates
records, connects one connection to another, or sends records back. Each run has one attack, drawn
from its seed. It must end on each rank in the right result, or in an error that names a peer; and
that within RINGDIST_PEER_TIMEOUT + 2 s after the attack. It needs root, and iproute2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from benchmarks.net import hosts as net
from tests.chaos.job_key import write_key
from tests.relay.relay import KINDS, Attack, Relay

RANKS = 3
PORT, STORE_PORT = 47000, 29500
PEER_TIMEOUT, MORE = 3.0, 2.0  # seconds; a longer --bound makes the timeout longer
MOST_PEER_TIMEOUT = 15.0
HANGS = 75.0  # seconds after which a run counts as hanging
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Outcome:
    """Result of a run on one rank."""

    rank: int
    error: str
    wrong: bool
    at: float
    ended: float

    def problem(self, attacked_at: float | None, bound: float) -> str:
        """Returns what is wrong with it, or nothing. `bound` is in seconds after the attack."""
        if self.wrong:
            return f"rank {self.rank} has a wrong result"
        if self.error and not re.search(rf"rank (?!{self.rank}\b)\d", self.error):
            return f"rank {self.rank} names no peer: {self.error}"
        if self.error and attacked_at is None:
            return f"rank {self.rank} failed without an attack: {self.error}"
        late = self.at - attacked_at if attacked_at else 0.0
        if late > bound:
            return f"rank {self.rank} ended {late:.1f} s after the attack: {self.error or 'right'}"
        return ""


class Job:
    """The ranks, one per host."""

    def __init__(self, hosts: net.Hosts, folder: Path, peer_timeout: float) -> None:
        self._hosts, self._folder, self._peer_timeout = hosts, folder, peer_timeout
        self._ranks: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        key = write_key(self._folder / "job.key")
        for rank in range(RANKS):
            variables = {
                **os.environ,
                "RINGDIST_KEY_FILE": str(key),
                "RINGDIST_PORT": str(PORT),
                "RINGDIST_SOCKET_IFNAME": self._hosts.address(rank),
                "RINGDIST_PEER_TIMEOUT": str(self._peer_timeout),
                "OMP_NUM_THREADS": "1",
            }
            store = f"{self._hosts.address(0)}:{STORE_PORT}"
            words = ["-m", "tests.relay.rank", str(rank), str(RANKS), store]
            with (self._folder / f"rank-{rank}.log").open("w") as log:
                self._ranks.append(
                    await asyncio.create_subprocess_exec(
                        *self._hosts.enter(rank),
                        sys.executable,
                        *words,
                        env=variables,
                        cwd=ROOT,
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                        stderr=log,
                    )
                )

    async def run(self, number: int) -> list[Outcome]:
        """Lets all ranks do a run. Raises RuntimeError for a rank that hangs or has ended."""
        for rank in self._ranks:
            rank.stdin.write(f"{number}\n".encode())
        lines = await asyncio.gather(*(self._line(number) for number in range(RANKS)))
        return [Outcome(rank, **json.loads(line)) for rank, line in enumerate(lines)]

    async def _line(self, rank: int) -> bytes:
        try:
            line = await asyncio.wait_for(self._ranks[rank].stdout.readline(), HANGS)
        except asyncio.TimeoutError:
            raise RuntimeError(f"rank {rank} hangs") from None
        if not line:
            raise RuntimeError(f"rank {rank} has ended")
        return line

    async def end(self) -> None:
        """Ends the ranks, and so their connections."""
        for rank in self._ranks:
            rank.stdin.close()
        for rank in self._ranks:
            try:
                await asyncio.wait_for(rank.wait(), HANGS)
            except asyncio.TimeoutError:
                rank.kill()
                await rank.wait()

    def logs(self) -> str:
        return "\n".join(one.read_text() for one in sorted(self._folder.glob("*.log")))


async def attack_all(hosts: net.Hosts, seeds: list[int], folder: Path, bound: float) -> int:
    """Runs one attack per seed. Returns the number of runs that ended otherwise than they must."""
    for host in range(RANKS):
        for other in range(RANKS):
            if other != host:
                words = ("address", "add", f"{hosts.address(other)}/32", "dev", "lo")
                net.call(*hosts.enter(host), "ip", *words)
    relay = Relay(
        [hosts.enter(host)[-1] for host in range(RANKS)],
        [hosts.address(host) for host in range(RANKS)],
    )
    await relay.listen(PORT, is_attacked=True, targets=list(range(RANKS)))
    await relay.listen(STORE_PORT, is_attacked=False, targets=[0])
    job = Job(hosts, folder, max(PEER_TIMEOUT, min(MOST_PEER_TIMEOUT, bound - MORE)))
    await job.start()
    try:
        return await _attack_with(relay, job, seeds, bound)
    finally:
        relay.attack = None
        await job.end()
        relay.close()


async def _attack_with(relay: Relay, job: Job, seeds: list[int], bound: float) -> int:
    bad, endings, longest = 0, Counter[str](), 0.0
    for seed in tqdm(seeds, unit="run", disable=not sys.stderr.isatty()):
        relay.attack = attack = Attack.draw(seed, RANKS)
        begin = time.monotonic()
        try:
            outcomes = await job.run(seed)
        except RuntimeError as error:
            print(f"seed {seed}: {attack}: {error}\n{job.logs()}")
            return bad + 1
        problems = [text for one in outcomes if (text := one.problem(attack.at, bound))]
        if problems:
            bad += 1
            tqdm.write(f"seed {seed}: {attack}: {'; '.join(problems)}")
        longest = max(longest, max(one.at for one in outcomes) - (attack.at or begin))
        failed = "error" if any(one.error for one in outcomes) else "right"
        endings["not met" if attack.at is None else f"{attack.kind}: {failed}"] += 1
    for kind in KINDS:
        right, error = (endings[f"{kind}: {word}"] for word in ("right", "error"))
        print(f"{kind:9} {right:5} right results   {error:5} errors")
    print(f"{endings['not met']} runs ended before their attack began")
    if len(seeds) >= 2 * len(KINDS) and endings["not met"] > len(seeds) / 2:
        print("most attacks have met no record, so this run shows nothing")
        bad += 1
    print(
        f"the longest run ended {longest:.1f} s after its attack; {relay.connections} connections"
    )
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.relay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--runs", type=int, default=1000, help="runs, of the seed and those after it"
    )
    parser.add_argument(
        "--seed", type=int, help="seed of the first run; a random one if it is missing"
    )
    parser.add_argument(
        "--bound",
        type=float,
        default=PEER_TIMEOUT + MORE,
        help="seconds after the attack in which a run must end (default: 5); the peer timeout "
        "is 2 s less, and from 3 to 15 s",
    )
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs: got {options.runs}, expected a number from 1")
    if reason := net.why_not():
        print(f"left out: {reason}")
        return 0
    first = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seeds {first} to {first + options.runs - 1}", flush=True)
    net.unwind_on_signals()
    with net.Hosts(RANKS) as hosts, tempfile.TemporaryDirectory(prefix="ringdist-relay-") as folder:
        bad = asyncio.run(
            attack_all(hosts, list(range(first, first + options.runs)), Path(folder), options.bound)
        )
    print(f"{bad} of {options.runs} runs ended otherwise than they must")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
