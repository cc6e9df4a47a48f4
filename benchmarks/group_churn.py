"""Measures resources that destroyed process groups leave behind, over ringdist and gloo.

    python -m benchmarks.group_churn                        500 groups of 2 ranks each
    python -m benchmarks.group_churn --groups 2000 --world-size 4 --backends ringdist

The resources are descriptors, threads and memory. Each group is created, used and destroyed. Its
use is an allreduce, an all-gather and a message around the ring.

Each backend has its own processes, and the figures are those of the rank with the largest ones.
Counting begins after the default group was used and its connections exist. Descriptors and threads
should be equal in every line of a backend. Resident memory is compared between the 100th group and
the last, because the first groups fill allocators and Python's caches. It ends with status 1 if
ringdist keeps any resources.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks import ranks

WARM = 100  # groups before memory is compared
ALLOWED_KIB = 2048
# Number of polls, one every 20 ms, in which no thread may end before resources are counted. Idle
# threads of the backend end after a second.
SETTLE = 75
PATIENCE = 20.0  # seconds
ELEMENTS = 16_384


@dataclass(frozen=True)
class Footprint:
    """Resources of one process."""

    groups: int
    descriptors: int
    threads: int
    resident_kib: int

    @classmethod
    def now(cls, groups: int) -> Footprint:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            groups,
            len(os.listdir("/proc/self/fd")),
            len(os.listdir("/proc/self/task")),
            pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--groups", type=int, default=500, metavar="N", help="per backend (default: %(default)s)")
    add("--world-size", type=int, default=2, metavar="N", help="ranks to start (default: 2)")
    add("--backends", nargs="+", default=["ringdist", "gloo"], metavar="NAME")
    args = parser.parse_args()
    if args.groups <= WARM:
        parser.error(
            f"--groups: {args.groups}: expected more than {WARM}, which are for warming up"
        )
    if args.world_size < 2:
        parser.error(f"--world-size: {args.world_size}: expected at least 2")
    return args


def use(group: dist.ProcessGroup | None) -> None:
    """Runs operations that make a backend allocate and connect, and checks one result."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(ELEMENTS)
    dist.all_reduce(tensor, group=group)
    if not bool((tensor == size).all()):
        raise SystemExit(f"rank {rank}: an allreduce of ones over {size} ranks is {tensor}")
    parts = [torch.empty(100) for _ in range(size)]
    dist.all_gather(parts, torch.full((100,), float(rank)), group=group)
    sending = dist.isend(torch.ones(100), (rank + 1) % size, group=group)
    dist.recv(torch.empty(100), (rank - 1) % size, group=group)
    sending.wait()


def settle() -> None:
    """Waits until idle threads have ended. It counts polls, because time also passes while the
    process stands still."""
    threads, same, deadline = -1, 0, time.monotonic() + PATIENCE
    while same < SETTLE and time.monotonic() < deadline:
        now = len(os.listdir("/proc/self/task"))
        same = same + 1 if now == threads else 0
        threads = now
        time.sleep(0.02)


def churn(groups: int, marks: set[int], backend: str, quiet: bool = True) -> list[Footprint]:
    """Creates, uses and destroys groups of all ranks. Returns the footprint after each group number
    in `marks`.

    The default group must exist. All ranks call it.
    """
    tqdm.monitor_interval = 0  # otherwise the thread of tqdm would be counted
    use(None)
    dist.barrier()  # opens the connections of the operations below, which stay
    settle()
    footprints = [Footprint.now(0)]
    for number in tqdm(range(1, groups + 1), desc=backend, unit="group", disable=quiet or None):
        group = dist.new_group(backend=backend)
        use(group)
        dist.destroy_process_group(group)
        del group
        if number in marks:
            # No rank counts while another still creates or destroys, or while idle threads are
            # left.
            dist.barrier()
            settle()
            footprints.append(Footprint.now(number))
    return footprints


def marks(groups: int) -> set[int]:
    return {1, 10, WARM, *range(WARM, groups, WARM), groups}


def one_rank(
    rank: int,
    world: int,
    _port: int,
    _barrier: Path,
    store_port: int,
    backend: str,
    groups: int,
    out: str,
) -> None:
    # The store keeps an entry for every group. It lives in the process that starts the ranks, so
    # that its growth does not count.
    store = dist.TCPStore("127.0.0.1", store_port, is_master=False)
    torch.set_num_threads(1)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    mine = churn(groups, marks(groups), backend, quiet=rank != 0)
    everyone: list[list[Footprint]] = [[] for _ in range(world)]
    dist.all_gather_object(everyone, mine)
    if rank == 0:
        Path(out).write_text(json.dumps([[asdict(one) for one in rank] for rank in everyone]))
    dist.destroy_process_group()


def measure(backend: str, world: int, groups: int) -> list[Footprint]:
    """Returns the maximum over ranks for each figure."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/footprints"
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ranks.launch(world, one_rank, store.port, backend, groups, out)
        recorded = json.loads(Path(out).read_text())
        everyone = [[Footprint(**one) for one in rank] for rank in recorded]
    return [
        Footprint(
            at[0].groups,
            max(one.descriptors for one in at),
            max(one.threads for one in at),
            max(one.resident_kib for one in at),
        )
        for at in zip(*everyone, strict=True)
    ]


def kept(footprints: list[Footprint]) -> list[str]:
    """Returns descriptions of resources that were not released."""
    before, last = footprints[0], footprints[-1]
    warm = next(f for f in footprints if f.groups == WARM)
    found = []
    for name in ("descriptors", "threads"):
        if getattr(last, name) != getattr(before, name):
            found.append(f"{name} went from {getattr(before, name)} to {getattr(last, name)}")
    grown = last.resident_kib - warm.resident_kib
    if grown > ALLOWED_KIB:
        found.append(
            f"resident memory grew by {grown} KiB from group {WARM} to {last.groups}; "
            f"{ALLOWED_KIB} are allowed"
        )
    return found


def show(backend: str, footprints: list[Footprint]) -> None:
    print(f"\n{backend}\n{'groups':>8}  {'descriptors':>11}  {'threads':>7}  {'resident KiB':>12}")
    for at in footprints:
        print(f"{at.groups:>8}  {at.descriptors:>11}  {at.threads:>7}  {at.resident_kib:>12}")
    print("; ".join(kept(footprints)) or "nothing is left behind")


def main() -> int:
    args = parse_arguments()
    print(f"{args.groups} groups of {args.world_size} ranks, torch {torch.__version__}")
    measured = {name: measure(name, args.world_size, args.groups) for name in args.backends}
    for backend, footprints in measured.items():
        show(backend, footprints)
    return 1 if "ringdist" in measured and kept(measured["ringdist"]) else 0


if __name__ == "__main__":
    sys.exit(main())
