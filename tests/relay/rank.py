"""A rank of the relay's job: python -m tests.relay.rank RANK SIZE STORE

Each line of standard input is the number of a run. A run creates a group, checks some operations of
random sizes, and ends the group. Its outcome is a line of JSON on standard output.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_ringdist  # noqa: F401 - registers the backend

LIMIT = timedelta(seconds=60)  # longer than the bound that is checked
OPERATIONS = 6
MOST_ELEMENTS = 1 << 18


def run(number: int, rank: int, size: int, store: dist.Store) -> dict[str, object]:
    dice = random.Random(number)
    error, wrong = "", False
    group = dist.PrefixStore(f"run {number}", store)
    try:
        dist.init_process_group("ringdist", store=group, rank=rank, world_size=size, timeout=LIMIT)
        for _ in range(OPERATIONS):
            count = int(MOST_ELEMENTS ** dice.random())
            values = torch.arange(count, dtype=torch.float32) % 1000
            tensor = values + rank
            dist.all_reduce(tensor)
            wrong |= not tensor.equal(size * values + sum(range(size)))
    except dist.DistError as raised:
        error = str(raised)
    at = time.monotonic()
    with contextlib.suppress(dist.DistError):
        dist.destroy_process_group()
    return {"error": error, "wrong": wrong, "at": at, "ended": time.monotonic()}


def main() -> None:
    rank, size = int(sys.argv[1]), int(sys.argv[2])
    host, port = sys.argv[3].rsplit(":", 1)
    store = dist.TCPStore(host, int(port), is_master=rank == 0, wait_for_workers=False)
    for line in sys.stdin:
        print(json.dumps(run(int(line), rank, size, store)), flush=True)


if __name__ == "__main__":
    main()
