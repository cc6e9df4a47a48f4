"""Compare autotune between hosts with all of its possible choices.

    python -m benchmarks.horovod.tuning --hosts 4 --rate 1gbit

Ranks on separate hosts (network namespaces, so root is needed) train by DistributedOptimizer. Each
setting is tried for some steps. Then autotune begins with 64 KiB, and searches. Finally its result
and the best of all settings take turns. A sample is a step of rank 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

import torch_ringdist.horovod as hvd
from benchmarks import report as common
from benchmarks.horovod.step import network, sgd, step_of
from benchmarks.net.hosts import Hosts, why_not
from torch_ringdist import _info_text
from torch_ringdist.horovod._autotune import FUSION_BYTES, IN_FLIGHT, Autotune, Setting
from torch_ringdist.horovod._global_state import required

_MOST_STEPS = 200


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.horovod.tuning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--hosts", type=int, default=4, metavar="N", help="default: 4")
    add("--rate", default="1gbit", help="of each host's link; default: 1gbit")
    add("--sweep", type=int, default=5, metavar="N", help="steps of each setting; default: 5")
    add("--turns", type=int, default=15, metavar="N", help="steps of both in the end; default: 15")
    add("--rank", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    common.require_at_least(parser, args, hosts=2, sweep=1, turns=1)
    return args


def rank(args: argparse.Namespace) -> None:
    """Runs one rank; rank 0 writes the figures."""
    hvd.init()
    net = network()
    optimizer = hvd.DistributedOptimizer(sgd(net), named_parameters=net.named_parameters())
    step = step_of(net, optimizer)
    group = required().whole

    def timed() -> float:
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin

    def tried(setting: Setting, steps: int) -> list[float]:
        if hvd.rank() == 0:
            group.named.tune(*setting)
        timed()  # the previous setting still applies to this step
        return [timed() for _ in range(steps)]

    settings = list(itertools.product(FUSION_BYTES, IN_FLIGHT))
    shown = tqdm(settings, desc="sweep", leave=False, disable=hvd.rank() != 0)
    sweep = [(setting, statistics.median(tried(setting, args.sweep))) for setting in shown]
    best = min(sweep, key=lambda one: one[1])[0]
    tried((FUSION_BYTES[0], IN_FLIGHT[1]), 0)
    with tempfile.TemporaryDirectory() as folder:
        autotune = Autotune(group, "none", None, Path(folder, "kept.json"))
        found, steps = _search(autotune, timed)
    samples: dict[str, list[float]] = {"autotune's": [], "the sweep's best": []}
    for _ in range(args.turns):
        samples["autotune's"] += tried(found, 1)
        samples["the sweep's best"] += tried(best, 1)
    if hvd.rank() == 0:
        figures = {"steps": steps, "found": found, "best": best, "samples": samples}
        args.rank.write_text(json.dumps({**figures, "sweep": sweep}))
    hvd.shutdown()


def _search(autotune: Autotune, timed: Callable[[], float]) -> tuple[Setting, int]:
    """Returns the result of rank 0's search, and its number of steps. All ranks take part for the
    same number."""
    steps = 0
    for number in tqdm(range(_MOST_STEPS), desc="autotune", leave=False, disable=hvd.rank() != 0):
        timed()
        if hvd.rank() == 0 and not autotune.is_over:
            autotune.step(time.monotonic())
            steps = number + 1
    return autotune.setting, steps


def measure(args: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, Hosts(args.hosts, args.rate) as hosts:
        out = Path(folder, "figures.json")
        names = [hosts.enter(host)[-1] for host in range(args.hosts)]
        command = [sys.executable, "-m", "torch_ringdist._launch.ringdistrun"]
        command += ["-np", str(args.hosts), "-H", ",".join(f"{name}:1" for name in names)]
        command += ["--rsh", "ip netns exec", "--address", hosts.address(0)]
        command += [sys.executable, "-m", "benchmarks.horovod.tuning", f"--rank={out}"]
        command += [f"--sweep={args.sweep}", f"--turns={args.turns}"]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return json.loads(out.read_text())


def main() -> int:
    args = parse_arguments()
    if args.rank is not None:
        rank(args)
        return 0
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return 1
    print(", ".join(f"{name}: {value}" for name, value in common.machine().items()), flush=True)
    figures = measure(args)
    rows = [("bytes as one", "at once", "a step, median")]
    for (size, flying), seconds in figures["sweep"]:
        rows.append((f"{size >> 10} KiB", str(flying), common.duration(seconds * 1e9)))
    print("\n".join(_info_text.table(rows)))
    print(f"\nautotune: {figures['found']} after {figures['steps']} steps; best: {figures['best']}")
    rows = [("", "minimum", "median")]
    for name, samples in figures["samples"].items():
        both = min(samples), statistics.median(samples)
        rows.append((name, *(common.duration(one * 1e9) for one in both)))
    print("\n".join(_info_text.table(rows)))
    found, best = figures["samples"].values()
    shares = min(best) / min(found), statistics.median(best) / statistics.median(found)
    print(f"speed: {shares[0]:.2f} / {shares[1]:.2f} of the best's, minimum / median")
    return 0


if __name__ == "__main__":
    sys.exit(main())
