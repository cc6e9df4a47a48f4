"""torch's DistributedTest suite as the server runs it: its tests, the tests for a backend, and one
rank of one test.

The suite decides at its import which tests to skip, by names in the environment. The server imports
this file with BACKEND=gloo, WORLD_SIZE and CONFORMANCE_GATES set, for any backend under test.
Another suite would be another module with names(), skipped(), prepare() and run_rank().
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

# The suite reads these variables when it is imported.
os.environ["BACKEND"] = "gloo"
os.environ.setdefault("INIT_METHOD", "file:///set-for-each-test")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

import torch
import torch.testing._internal.common_distributed as common

from tests.conformance import devices, lists

LIFTED = lists.lifted() if os.environ["CONFORMANCE_GATES"] == "lifted" else {}
WORLD_SIZE = int(os.environ["WORLD_SIZE"])


class AskedAsGloo(str):
    """The name of the tested backend, which compares equal to "gloo" in the suite's checks."""

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _without(gate: Callable, allowed: Callable[[str], bool]) -> Callable:
    """Returns the decorator `gate`, without effect on the tests that `allowed` accepts."""

    @functools.wraps(gate)
    def decorator(test: Callable) -> Callable:
        gated = gate(test)

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            name = args[0]._testMethodName
            return (test if allowed(name) else gated)(*args, **kwargs)

        return run

    return decorator


def _is_lifted(gate: str) -> Callable[[str], bool]:
    return lambda name: gate in lists.find(LIFTED, name)


def _lift_gates() -> None:
    """Replaces helpers of torch before the suite imports them."""
    gpu = _is_lifted("gpu")
    with_gpus = common.skip_if_lt_x_gpu
    common.skip_if_no_gpu = _without(common.skip_if_no_gpu, gpu)
    common.skip_if_lt_x_gpu = lambda x, **options: _without(with_gpus(x, **options), gpu)
    # The tests only form the group [1, 2].
    small = _is_lifted("world")
    common.skip_if_small_worldsize = _without(
        common.skip_if_small_worldsize, lambda name: WORLD_SIZE > 2 and small(name)
    )
    with_gpu_list = common.init_multigpu_helper

    def one_each(world_size: int, backend: str) -> dict[int, list[int]]:
        if devices.active():
            return {rank: [rank] for rank in range(world_size)}
        return with_gpu_list(world_size, backend)

    common.init_multigpu_helper = one_each


_lift_gates()

import torch.testing._internal.distributed.distributed_test as upstream  # noqa: E402

_PROFILED = (
    upstream.PROFILING_SUPPORTED_BACKENDS,
    upstream.CUDA_PROFILING_SUPPORTED_BACKENDS,
    upstream.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
)
for _profiled in _PROFILED:
    _profiled.append("ringdist")

# By default its barrier waits for 10 s, which is too short on a loaded machine.
upstream.Barrier.sync.__func__.__defaults__ = (None, 60)


class Suite(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):
    """A case of this class is one rank."""


def describe() -> str:
    """Describes the origin of the tests, as far as it changes their results."""
    return f"torch {torch.__version__}"


def names() -> list[str]:
    return sorted(name for name in dir(Suite) if name.startswith("test_"))


def skipped(name: str) -> str | None:
    """Returns the reason why the suite skips the test before it starts any rank, or None."""
    test = getattr(Suite, name)
    if not getattr(test, "__unittest_skip__", False):
        return None
    reason = test.__unittest_skip_why__
    by_name = "Only MPI supports" in reason
    return None if by_name and "name" in lists.find(LIFTED, name) else reason


def exit_reasons() -> dict[int, str]:
    """Returns the exit statuses with which a rank reports a skip."""
    return {skip.exit_code: skip.message for skip in common.TEST_SKIPS.values()}


def prepare(name: str) -> str:
    """Prepares a test before its ranks are forked. Returns the file of their rendezvous.

    torch's own helper makes a folder that disappears when an interpreter ends, which may be any
    rank.
    """
    folder = tempfile.mkdtemp(prefix="conformance-")
    for inside in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, inside))
    os.environ["TEMP_DIR"] = folder
    os.environ["INIT_METHOD"] = f"file://{folder}/init_dir/shared"
    upstream.INIT_METHOD = os.environ["INIT_METHOD"]
    upstream.Barrier.init()
    return os.path.join(folder, "store")


def clean_up() -> None:
    shutil.rmtree(os.environ["TEMP_DIR"], ignore_errors=True)


def run_rank(backend: str, name: str, rank: int, file: str, pipe: Any) -> None:
    """Runs a rank and ends by SystemExit. Sends the traceback of a failure first."""
    upstream.BACKEND = backend if backend == "gloo" else AskedAsGloo(backend)
    if "gpu" in lists.find(LIFTED, name):
        with devices.cpu_for_gpu():
            Suite._run(rank, name, file, pipe)
    Suite._run(rank, name, file, pipe)
