"""Reports about a call by name that some ranks do not make."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import torch
from support.horovod import initialized
from support.launched import ringdistrun

import torch_ringdist
import torch_ringdist.horovod as hvd

SCRIPT = """
import time, torch, torch_ringdist.horovod as hvd
hvd.init()
hvd.barrier()
if hvd.rank() == 2:
    time.sleep({})
hvd.allreduce(torch.ones(1), name="late")
"""


def _run(seconds: float, *options: str) -> subprocess.CompletedProcess[str]:
    return ringdistrun("-np", "3", *options, sys.executable, "-c", SCRIPT.format(seconds))


def test_a_rank_that_sleeps_is_named_in_one_line():
    done = _run(6, "--stall-check-warning-time-seconds=1")
    assert done.returncode == 0, done.stderr
    # On a busy machine the barrier may wait, too, and the sleep takes longer.
    lines = [line for line in done.stdout.split("\n") if "'late'" in line]
    assert 1 <= len(lines) < 20, done.stdout  # one per second
    said = r"'late' \(for \d+ s\) waits for rank 2 \(pid \d+ on host .+\), which waits for nothing"
    # Rank 1 may be late, too, when the first line is written.
    named = [line for line in lines if re.search(said, line)]
    assert named, lines
    assert named[0].startswith("[0] "), "rank 0 says it"


def test_nothing_is_said_if_so_asked():
    done = _run(1.5, "--stall-check-warning-time-seconds=1", "--no-stall-check")
    assert done.returncode == 0, done.stderr
    assert "waits for" not in done.stdout


def test_a_stall_may_end_with_an_error():
    done = _run(60, "--stall-check-shutdown-time-seconds=10")  # enough for the barrier
    assert done.returncode != 0
    assert "HorovodInternalError" in done.stdout
    assert "Timed out waiting 10000 ms for all ranks to call 'late'" in done.stdout


def _wait_until(what: str) -> str:
    while what not in (out := torch_ringdist.dump()):
        time.sleep(0.05)  # or the test times out
    return out


def _dumps() -> None:
    with initialized():
        names = ["mine"] if hvd.rank() < 2 else ["other"]
        handles = [hvd.allreduce_async(torch.ones(1), name=name) for name in names]
        if hvd.rank() < 2:
            out = _wait_until("which waits for 'other'")
            assert "no operation in flight" not in out
            assert re.search(r"'mine', all_reduce .*: waits for rank 2 \(pid \d+", out), out
        else:
            out = _wait_until("which waits for 'mine'")
            assert re.search(r"'other', all_reduce .*: waits for rank 0 \(pid \d+.*; rank 1", out)
        hvd.barrier()  # a waiting rank remains visible
        rest = {"mine", "other"} - set(names)
        handles += [hvd.allreduce_async(torch.ones(1), name=name) for name in rest]
        for handle in handles:
            hvd.synchronize(handle)


def test_dump_says_at_once_what_others_do_instead(pools):
    pools(3).run(_dumps)
