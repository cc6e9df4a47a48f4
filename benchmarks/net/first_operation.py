"""One rank's part of the first case of `python -m benchmarks.net.sockets`: the first allreduce of a
new group over tcp, in which its connections are made."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks import ranks
from benchmarks.net.groups import LIMIT, groups_of
from benchmarks.net.variants import Variant

ELEMENTS = (1 << 20) // 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--barrier", "--progress", "--json"):
        parser.add_argument(name, type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=LIMIT)
    variant = Variant.parse("ringdist@tcp")
    group = groups_of([variant])[variant.group]
    tensor = torch.ones(ELEMENTS)
    dist.barrier()
    ranks.SpinBarrier(args.barrier, dist.get_rank(), dist.get_world_size()).wait()
    begin = time.monotonic_ns()
    dist.all_reduce(tensor, group=group)
    ends = torch.tensor([time.monotonic_ns(), -begin])
    dist.all_reduce(ends, dist.ReduceOp.MAX)  # ranks share a clock
    if dist.get_rank() == 0:
        args.json.write_text(json.dumps(int(ends.sum())))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
