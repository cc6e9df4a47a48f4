"""What a process lacks, or was given wrongly, is named when its first group is created."""

from __future__ import annotations

import os
import resource
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, caught, init


def _first_op() -> None:
    init(timeout=timedelta(seconds=10))
    size = dist.get_world_size()
    dist.all_to_all_single(torch.empty(size), torch.ones(size))


def _with_descriptors(left: int) -> Raised | None:
    used = len(os.listdir("/proc/self/fd"))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + left, most))
    return caught(_first_op)


# From none for our own to enough; UCX needs as many again, and aborts without.
@pytest.mark.parametrize(
    ("transport", "left", "enough"),
    [
        ("", 2, False),
        ("", 6, False),
        ("", 12, False),
        ("", 24, True),
        ("ucx", 18, False),
        ("ucx", 24, False),
        ("ucx", 40, True),
    ],
)
def test_who_lacks_descriptors_is_told_what_to_raise(
    fresh_pool, transport: str, left: int, enough: bool
):
    pool = fresh_pool(2, init=False, environment={"RINGDIST_TRANSPORT": transport})
    for error in pool.run(_with_descriptors, left):
        assert (error is None) == enough, error
        assert error is None or "raise 'ulimit -n'" in error.text, error


@pytest.mark.parametrize(
    ("variable", "blamed"),
    [
        ("UCX_TLS", "UCX_TLS='bogus'"),
        ("UCX_NET_DEVICES", "UCX_NET_DEVICES='bogus'"),
        ("RINGDIST_SOCKET_IFNAME", 'RINGDIST_SOCKET_IFNAME="bogus"'),
    ],
)
def test_the_setting_that_does_not_fit_is_blamed(fresh_pool, variable: str, blamed: str):
    over_ucx = {"RINGDIST_TRANSPORT": "ucx"}
    pool = fresh_pool(2, init=False, environment={variable: "bogus", **over_ucx})
    others = {"UCX_TLS", "UCX_NET_DEVICES", "choose another with RINGDIST"} - {variable}
    for error in pool.run(_caught_first_op):
        assert error and blamed in error.text, error
        assert not any(other in error.text for other in others), error


def _caught_first_op() -> Raised | None:
    return caught(_first_op)
