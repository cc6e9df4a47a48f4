"""Log messages about groups that form and end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.rank import Ranks, poll


def _log_of(rank: int) -> str:
    return Path(f"{Ranks.launch.log}.{rank}").read_text(errors="replace")


def _line_of(rank: int, words: str) -> str:
    """Returns the first line with these words that the rank logs."""
    assert poll(lambda: words in _log_of(rank), 30), f"no '{words}' in:\n{_log_of(rank)}"
    return next(line for line in _log_of(rank).splitlines() if words in line)


def _all_reduce() -> None:
    dist.all_reduce(torch.ones(4))


def _new_group_and_leave() -> None:
    dist.barrier()  # the first group forms in the background, perhaps after a later one
    group = dist.new_group(backend="ringdist")
    dist.all_reduce(torch.ones(4), group=group)
    if Ranks.rank == 0:  # it must get the notice of the other rank before its group is gone
        _line_of(0, " left after op #")
    dist.destroy_process_group(group)


@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="names what a host chooses")
def test_a_formed_group_says_so_at_info(fresh_pool):
    environment = {"RINGDIST_LOG_LEVEL": "info", "RINGDIST_SEGMENT_BYTES": "64KiB"}
    pool = fresh_pool(3, environment=environment)
    pool.run(_all_reduce)
    formed = [line for line in pool.log(1).splitlines() if " is formed: " in line]
    assert len(formed) == 1, pool.log(1)
    assert "info: group '0' is formed: rank 1 of 3, ranks 0-2 on host " in formed[0]
    for words in ("interface ", "shm to ranks 0 2", "RINGDIST_SEGMENT_BYTES=64KiB"):
        assert words in formed[0], formed[0]


def test_debug_tells_how_groups_are_formed_and_end(fresh_pool):
    pool = fresh_pool(2, environment={"RINGDIST_LOG_LEVEL": "debug"})
    pool.run(_new_group_and_leave)
    text = pool.log(0)
    for words in (
        "debug: group '0': rank 0 of 2 is looking for the others",
        "debug: group '0': all 2 ranks are in the store",
        "debug: control link to pid ",
        "info: group '0' is formed: ",
        " left after op #",
        ": closed after op #1",
    ):
        assert words in text, text
