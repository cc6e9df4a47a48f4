"""Daemon threads that wait in an operation when the script ends. The process must exit normally."""

from __future__ import annotations

from pathlib import Path

from support.pool import run_interpreters

# A parent that has imported torch forks the pairs of ranks. Each
# rank ends like a script, with threads in all kinds of waits.
SCRIPT = """
import contextlib, os, sys, threading, time, traceback
import torch, torch.distributed as dist
import torch_ringdist
from datetime import timedelta

ROUNDS, FOLDER = 5, os.environ["FOLDER"]

def main(rank, number):
    store = dist.FileStore(f"{FOLDER}/{number}", 2)
    dist.init_process_group(
        "ringdist", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=5)
    )
    groups = [dist.new_group() for _ in range(3)]
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    strided = torch.ones(4, 4).t()
    def forever(call):
        def run():
            with contextlib.suppress(RuntimeError):
                while True:
                    call()
            while True:  # those that come back later wait for the GIL
                pass
        threading.Thread(target=run, daemon=True).start()
    for tag in range(4):
        forever(lambda tag=tag: dist.recv(torch.empty(4), 1 - rank, tag=tag))
        late = lambda tag=tag: dist.irecv(torch.empty(4), 1 - rank, tag=9 + tag)
        forever(lambda late=late: late().get_future().wait())
    forever(lambda: dist.all_reduce(torch.ones(4), group=groups[0]))
    if rank == 0:
        forever(lambda: dist.all_reduce(torch.ones(4), group=groups[1]))
        forever(lambda: dist.broadcast(strided, 0, group=groups[2]))
    time.sleep(0.05)

children = {}
for number in range(ROUNDS):
    for rank in range(2):
        child = os.fork()
        if child == 0:
            main(rank, number)
            sys.exit(0)
        children[child] = rank
    for _ in range(2):
        child, status = os.wait()
        if status:
            print(f"rank {children[child]} of round {number}: {os.waitstatus_to_exitcode(status)}")
"""


def test_no_abort_at_exit(tmp_path: Path):
    (done,) = run_interpreters(1, SCRIPT, FOLDER=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", f"{done.stdout}{done.stderr}"
    assert "terminate called" not in done.stderr, done.stderr
