"""Timeouts of any size: huge ones count as a hundred years, negative ones are rejected by name."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import caught
from test_monitored_barrier import monitored_barrier

from torch_ringdist._generation import checked_timeout
from torch_ringdist.elastic._settings import _duration
from torch_ringdist.horovod._global_state import TIMEOUT, _await_ranks, _timeout
from torch_ringdist.horovod._launch_info import LaunchInfo

HUGE = [timedelta(seconds=2**31 - 1), timedelta(days=365_000), timedelta.max]
NEGATIVE = [timedelta(seconds=-1), timedelta(milliseconds=-2)]
LONGEST = timedelta(days=36_500)


def _huge() -> None:
    for timeout in HUGE:
        group = dist.new_group(timeout=timeout)
        backend = group._get_backend(torch.device("cpu"))
        # Rounded on its way, by less than a second.
        assert abs(backend.timeout - min(timeout, LONGEST)) <= timedelta(seconds=1)
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        assert work.wait(timeout)
        options = dist.AllreduceOptions()
        options.timeout = timeout
        assert group.allreduce([torch.ones(3)], options).wait()
        group.monitored_barrier(timeout)
        backend.set_timeout(timeout)
        dist.all_reduce(torch.eye(3).to_sparse(), group=group)
        dist.destroy_process_group(group)


def test_huge_ones(pools):
    pools(2).run(_huge)


def _negative() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for timeout in NEGATIVE:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        options = dist.AllreduceOptions()
        options.timeout = timeout
        for what, call in {
            "new_group": lambda timeout=timeout: dist.new_group(timeout=timeout),
            "wait": lambda timeout=timeout, work=work: work.wait(timeout),
            "all_reduce": lambda options=options: backend.allreduce([torch.ones(3)], options),
            "monitored_barrier": lambda timeout=timeout: monitored_barrier(
                dist.group.WORLD, round(timeout.total_seconds() * 1000)
            ),
            "set_timeout": lambda timeout=timeout: backend.set_timeout(timeout),
        }.items():
            error = caught(call)
            assert error is not None and error.kinds[0] == "ArgumentError", (what, timeout, error)
            assert what in error.text and "timeout must not be negative, got -" in error.text
        work.wait()
    dist.barrier()


def test_negative_ones(pools):
    pools(2).run(_negative)


def test_those_of_python(monkeypatch: pytest.MonkeyPatch):
    for timeout in HUGE[1:]:
        assert checked_timeout("join", timeout, timedelta(0)) == LONGEST
        assert _duration("rejoin_timeout", timeout) == LONGEST
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "9" * 30)
    assert _timeout("HOROVOD_START_TIMEOUT") == LONGEST
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "0")
    assert _timeout("HOROVOD_START_TIMEOUT") == TIMEOUT
    assert _timeout("HOROVOD_START_TIMEOUT", zero=LONGEST) == LONGEST


def test_horovod_waits_for_a_rank_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "1")
    began = time.monotonic()
    with pytest.raises(dist.DistStoreError):
        _await_ranks(LaunchInfo(0, 2, None, None, "", 0), dist.HashStore())
    assert time.monotonic() - began < 60, "the limit of the group is half an hour"
