"""All ranks of a host end during a hierarchical operation. Every other rank must name one of
them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from support.launched import preloaded

from benchmarks.net import hosts as net  # support.launched has added the repository to sys.path

LIMIT = 200  # seconds per case
RANKS, PER_HOST = 4, 2

# Ranks 2 and 3, which are host 1, end during a series of operations of half a second.
SCRIPT = """
import json, os, signal, sys, threading, time
import torch, torch.distributed as dist, torch_ringdist
operation, out = sys.argv[1], sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("ringdist")
rank = dist.get_rank()
tensor = torch.ones(1 << 23)
parts = torch.ones(1 << 21)
residual = torch.zeros(1 << 23)
call = {
    "all_reduce": lambda: dist.all_reduce(tensor),
    "int4": lambda: torch_ringdist.all_reduce(tensor, codec="int4", residual=residual),
    "all_gather": lambda: dist.all_gather_into_tensor(tensor, parts),
    "reduce_scatter": lambda: dist.reduce_scatter_tensor(parts, tensor),
    "broadcast": lambda: dist.broadcast(tensor, 1),
}[operation]
call()
dist.barrier()
def die():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
if rank >= 2:
    threading.Thread(target=die).start()
begin = time.monotonic()
try:
    while True:
        call()
        tensor.fill_(1)
except Exception as error:
    said = {"error": str(error), "seconds": time.monotonic() - begin - 0.3}
    open(f"{out}/{rank}.json", "w").write(json.dumps(said))
time.sleep(2)  # the end of a process that says nothing would be another cause
os._exit(0)
"""


def _start(hosts: net.Hosts, rank: int, words: list[str]) -> preloaded.ForkedProcess:
    variables = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_RANK": str(rank % PER_HOST),
        "MASTER_ADDR": hosts.address(0),
        "MASTER_PORT": "29500",  # the namespaces are private
        "OMP_NUM_THREADS": "1",
    }
    command = [*hosts.enter(rank // PER_HOST), sys.executable, *words]
    return preloaded.ForkedProcess(command, env=variables)


@pytest.mark.hosts
@pytest.mark.timeout(LIMIT + 40)
@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone")
@pytest.mark.parametrize(
    "operation", ["all_reduce", "int4", "all_gather", "reduce_scatter", "broadcast"]
)
def test_the_others_name_a_rank_of_it(tmp_path: Path, operation: str):
    script = tmp_path / "dies.py"
    script.write_text(SCRIPT)
    deadline = time.monotonic() + LIMIT
    with net.Hosts(
        RANKS // PER_HOST, "500mbit"
    ) as hosts:  # leaving it kills processes that still run
        words = [str(script), operation, str(tmp_path)]
        running = [_start(hosts, rank, words) for rank in range(RANKS)]
        for process in running:
            process.wait(max(1.0, deadline - time.monotonic()))
    for rank in range(PER_HOST):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        print(f"rank {rank}, {said['seconds'] * 1e3:.0f} ms after the end: {said['error'][:200]}")
        assert "rank 2" in said["error"] or "rank 3" in said["error"], said
