"""elastic.run in a process that is a job of one rank."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.launched import preloaded, python_path

from torch_ringdist.elastic import _leave

BEGIN = """
import os
import torch.distributed as dist
import torch_ringdist.horovod as hvd
from torch_ringdist import elastic

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
os.environ["RINGDIST_RDZV"] = f"127.0.0.1:{store.port}"
state = elastic.State(epoch=0)
"""

ARGUMENTS = """
@elastic.run
def train(state, count, *, more):
    state.commit()
    return state.steps + count + more

elastic.init(checkpoint=None)
print("result", train(state, 10, more=100))
dist.destroy_process_group()
"""

AGAIN = """
elastic.init(checkpoint=None)
elastic.run(lambda state: state.commit())(state)
dist.destroy_process_group()
elastic.init(checkpoint=None)
"""

HOROVOD_AGAIN = """
hvd.init()
state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, value=1)
train = hvd.elastic.run(lambda state: state.commit())
train(state)
train(state)
"""

LOADS = """
elastic.init(checkpoint=None)
state.load("folder")
elastic.run(lambda state: state.load("folder"))(state)
"""

DESTROYS = """
elastic.init(checkpoint=None)
elastic.run(lambda state: dist.destroy_process_group())(state)
"""


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        (ARGUMENTS, 0, "result 111"),
        (AGAIN, 1, "elastic.init: this process has trained already"),
        (HOROVOD_AGAIN, 1, "elastic.init: this process has trained already"),
        (LOADS, 1, "State.load: call it before the training function"),
        (DESTROYS, 1, "the training function has destroyed the default group"),
    ],
    ids=["arguments", "again", "horovod again", "loads", "destroys"],
)
def test_a_job_of_one_rank(tmp_path: Path, script: str, status: int, said: str):
    environment = {**os.environ, "PYTHONPATH": python_path(), "LOCAL_RANK": "0"}
    done = preloaded.run(["-c", BEGIN + script], env=environment, timeout=60)
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr


def _sleep(begun: Any) -> None:
    begun.set()
    time.sleep(60)


def test_a_forked_child_ends_by_sigterm():
    forks = multiprocessing.get_context("fork")
    begun = forks.Event()
    child = forks.Process(target=_sleep, args=(begun,))
    _leave.set_member(True)
    try:
        with _leave.signals():
            child.start()
            assert begun.wait(30)
            child.terminate()
            child.join(10)
    finally:
        _leave.set_member(False)
    exit_code = child.exitcode
    child.kill()
    assert exit_code == -15
    assert not _leave.leave_was_asked()
