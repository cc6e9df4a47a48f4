"""Systems that lack features."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.pool import run_interpreters

SOURCE = Path(__file__).parent / "support" / "no_unix_sockets.c"

RANKS = """
import sys, torch, torch.distributed as dist
rank, size, port = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
for count in (3, 300_000):
    tensor = torch.ones(count)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()
dist.destroy_process_group()
print("good")
"""


def test_without_sockets_of_af_unix(tmp_path: Path):
    """Ranks of a host reach each other over TCP, and each reports once what that costs."""
    shim = tmp_path / "no_unix_sockets.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, SOURCE, "-ldl"], check=True)
    for done in run_interpreters(2, RANKS, fresh=True, LD_PRELOAD=str(shim)):
        assert (done.returncode, done.stdout) == (0, "good\n"), done
        assert done.stderr.count("reach each other over TCP, without shared memory") == 1, done
