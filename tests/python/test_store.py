"""Stores that groups use. Groups leave nothing in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.pool import run_interpreters
from support.rank import Ranks, new_group, poll

WHICH = """
import gc, os, sys
rank, size, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
import torch, torch.distributed as dist
import torch_ringdist
path = os.environ["TEST_STORE"]
"""
BY_OBJECT = """
store = dist.FileStore(path, size)
dist.init_process_group("ringdist", store=store, rank=rank, world_size=size)
del store
"""
BY_ADDRESS = """
dist.init_process_group("ringdist", init_method=f"file://{path}", rank=rank, world_size=size)
"""
USED = """
dist.all_reduce(tensor := torch.ones(3))
assert tensor.tolist() == [size] * 3
dist.new_group([0])
dist.barrier()
dist.destroy_process_group()
gc.collect()
"""


@pytest.mark.parametrize("how", [BY_OBJECT, BY_ADDRESS], ids=["object", "address"])
def test_the_file_of_a_store_goes_with_it(tmp_path: Path, how: str):
    path = tmp_path / "store"
    for done in run_interpreters(2, WHICH + how + USED, TEST_STORE=str(path)):
        assert done.returncode == 0, done.stderr
    assert not path.exists(), "somebody still holds it"


def _keys_that_stay(groups: int) -> list[str]:
    """Returns keys that groups leave in the store. Counters of groups that are created again are
    left out."""

    def ours() -> set[str]:
        keys = [key for key in Ranks.store.list_keys() if Ranks.launch.prefix in key]
        return {key for key in keys if "/entry/" in key or "/host/" in key or "/reach/" in key}

    before = ours()  # keys of ranks that other tests have killed
    for _ in range(groups):
        group = new_group()
        dist.all_reduce(torch.ones(3), group=group)
        dist.destroy_process_group(group)
    dist.barrier()
    poll(lambda: ours() <= before)
    dist.barrier()
    return sorted(ours() - before)


def test_what_ranks_leave_for_each_other_is_removed(pools):
    for keys in pools(3).run(_keys_that_stay, 5):
        assert not keys, keys
