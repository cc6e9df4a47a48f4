"""Time from the start of a job on one host until its first operations have ended.

    python -m benchmarks.startup                              2, 16 and 32 ranks, 7 launches each
    python -m benchmarks.startup --ranks 2 --launches 30 --json out.json
    python -m benchmarks.startup --work groups --ranks 96 --launches 3
    python -m benchmarks.startup --loaded                     without ringdist's own load

Each launch forks its ranks from this process, which has imported torch, like a server that forks
workers. So no figure includes an import of torch. The store has a process of its own, like that of
torchrun's agent, and no figure includes it either. All ranks have connected to it when they start,
at the same time.

gloo is loaded with torch. Each rank loads ringdist's native module for its first group, because
`import torch` must not load it. With --loaded this process loads it, like a server that calls
torch_ringdist.Options() before it forks.

The clock stops when the last rank has done this work:

    allreduce   init_process_group, an allreduce of 1 MiB, a barrier
    groups      init_process_group, four subgroups with an allreduce in each, an all_to_all of
                256 floats between all pairs, a barrier

The figure init is the time until the slowest rank has called init_process_group. Backends take
turns, so that other load on this machine affects all of them equally. So ratios are more reliable
than times. It ends with status 1 if a rank fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

import torch_ringdist
from benchmarks import report as common

BACKENDS = ["gloo", "ringdist"]
SUBGROUPS = 4
LIMIT = 60  # time limit of a launch, in seconds


@dataclass(frozen=True)
class Launch:
    """Times of one launch until its slowest rank had finished, in nanoseconds."""

    backend: str
    ranks: int
    init: int
    total: int


def first_allreduce() -> None:
    size = dist.get_world_size()
    tensor = torch.ones(common.MIB // 4)
    dist.all_reduce(tensor)
    dist.barrier()
    expect(bool((tensor == size).all()), "an allreduce of ones")


def first_groups() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    members = [list(range(n, size, SUBGROUPS)) for n in range(SUBGROUPS)]
    mine = [dist.new_group(ranks) for ranks in members][rank % SUBGROUPS]
    tensor = torch.ones(1024)
    dist.all_reduce(tensor, group=mine)
    sent = torch.full((size, 256), float(rank))
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent)
    dist.barrier()
    expect(bool((tensor == len(members[rank % SUBGROUPS])).all()), "an allreduce of a subgroup")
    expect(bool((got[:, 0] == torch.arange(size)).all()), "an all_to_all")


WORK = {"allreduce": first_allreduce, "groups": first_groups}


def expect(right: bool, what: str) -> None:
    if not right:
        raise SystemExit(f"{what} went wrong")


def one_rank(
    backend: str, rank: int, ranks: int, port: int, work: str, start: int, tells: int
) -> list[int]:
    """Returns the times at which this rank had its group and had finished (time.monotonic_ns)."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    os.write(tells, b"r")
    os.read(start, 1)  # returns when the parent closes its end
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    times = [time.monotonic_ns()]
    WORK[work]()
    return [*times, time.monotonic_ns()]


def fork_store() -> tuple[int, int]:
    """Starts the store in a new process. Returns the process id and the port. The ranks' parent has
    no threads, because a fork could copy locks that they hold."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(tells, str(store.port).encode())
        while True:
            signal.pause()
    os.close(tells)
    port = os.read(told, 16)
    os.close(told)
    return child, int(port)


def fork_rank(backend: str, rank: int, ranks: int, port: int, work: str, start: list[int]) -> tuple:
    """Starts a rank. Returns its process id, and a pipe with the result of one_rank()."""
    told, tells = os.pipe()
    child = os.fork()
    if child:
        os.close(tells)
        return child, told
    status = 1
    try:
        os.close(start[1])
        times = one_rank(backend, rank, ranks, port, work, start[0], tells)
        os.write(tells, json.dumps(times).encode())
        dist.destroy_process_group()
        status = 0
    except BaseException as error:  # the child must not return into code of the parent
        print(f"{backend}: rank {rank}: {error}", file=sys.stderr, flush=True)
    os._exit(status)


def launch(backend: str, ranks: int, work: str) -> Launch:
    server, port = fork_store()
    start = list(os.pipe())
    children = [fork_rank(backend, rank, ranks, port, work, start) for rank in range(ranks)]
    signal.alarm(LIMIT)
    try:
        ready = [os.read(told, 1) for _, told in children]
        begun = time.monotonic_ns()
        for end in start:
            os.close(end)
        told = [os.read(told, 4096) for _, told in children]
        failed = [child for child, _ in children if os.waitpid(child, 0)[1] != 0]
    except TimeoutError:
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        raise SystemExit(f"{backend}: {ranks} ranks were not done in {LIMIT} s") from None
    finally:
        signal.alarm(0)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        for _, end in children:
            os.close(end)
    if failed or not all(ready):
        raise SystemExit(f"{backend}: {len(failed)} of {ranks} ranks failed")
    times = [json.loads(one) for one in told]
    return Launch(
        backend,
        ranks,
        init=max(init for init, _ in times) - begun,
        total=max(done for _, done in times) - begun,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", nargs="+", type=int, default=[2, 16, 32], metavar="N", help="default: 2 16 32")
    add("--launches", type=int, default=7, metavar="N", help="per backend and N (default: 7)")
    add("--work", choices=WORK, default="allreduce", help="until when (default: allreduce)")
    add("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="default: both")
    add("--loaded", action="store_true", help="load ringdist before the ranks are forked")
    add("--json", type=Path, metavar="FILE", help="also write every launch there, in nanoseconds")
    args = parser.parse_args()
    least = SUBGROUPS if args.work == "groups" else 2
    if min(args.ranks) < least:
        parser.error(f"--ranks: {min(args.ranks)}: expected at least {least}")
    if args.launches < 1:
        parser.error(f"--launches: {args.launches}: expected at least 1")
    return args


def row(launches: list[Launch]) -> str:
    first = launches[0]
    cells = [str(first.ranks), first.backend]
    for name in ("init", "total"):
        times = [getattr(one, name) for one in launches]
        cells += [common.duration(min(times)), common.duration(statistics.median(times))]
    return "| " + " | ".join(cells) + " |"


def interrupted(_number: int, _frame: object) -> None:
    raise TimeoutError


def main() -> int:
    args = parse_arguments()
    signal.signal(signal.SIGALRM, interrupted)
    if args.loaded:
        torch_ringdist.Options()
    launches: list[Launch] = []
    turns = [(ranks, n) for ranks in args.ranks for n in range(args.launches)]
    for ranks, n in tqdm(turns, unit="launch", disable=not sys.stderr.isatty()):
        order = args.backends if n % 2 == 0 else args.backends[::-1]
        launches += [launch(backend, ranks, args.work) for backend in order]
    if args.json:
        figures = {
            **common.machine(),
            "work": args.work,
            "loaded": args.loaded,
            "launches": [asdict(one) for one in launches],
        }
        args.json.write_text(json.dumps(figures, indent=1))
    print("| ranks | backend | init, min | median | done, min | median |")
    print("|---|---|---|---|---|---|")
    for ranks in args.ranks:
        for backend in args.backends:
            print(row([one for one in launches if (one.ranks, one.backend) == (ranks, backend)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
