"""init(), shutdown() and what asks about this rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_ringdist import _native
from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod import _global_state, _sets, _timeline
from torch_ringdist.horovod._errors import as_internal
from torch_ringdist.horovod._launch_info import is_elastic, launched

_initial: list[_sets.ProcessSet] = []  # of init()


def init(
    comm: Sequence[int] | None = None,
    process_sets: Sequence[_sets.ProcessSet] | str | None = None,
) -> None:
    """Find the other ranks, by what torchrun, OpenMPI or Slurm has left in the environment; alone
    where there is nothing. All ranks call it. A second call does nothing; after shutdown() it
    begins anew. torch's default group is left alone.

    Where ranks may come and go this one is alone, until elastic.run trains.

    Args:
        comm: of MPI; there is none here, so None, or all ranks in order.
        process_sets: sets of ranks to begin with, the same on all ranks; "dynamic" of Horovod's
            means none, as more may be added at any time.

    Raises:
        ValueError: comm is something else; a variable that makes no sense; no host of rank 0;
            process sets that differ, are alike or have ranks that are none.
        HorovodInternalError: the others were not found.
    """
    if _global_state.current() is not None:
        return
    size = launched().size
    if comm is not None and list(comm) != list(range(size)):
        raise ArgumentError(
            f"hvd.init: comm must be None, or all ranks in their order; got {comm!r}: there is no "
            "MPI here; use process_sets= for some ranks"
        )
    sets = [] if process_sets in (None, "dynamic") else list(process_sets)
    if not is_elastic():
        _sets.check(sets, size)
    with as_internal():
        _global_state.begin()
    _initial[:] = sets
    _begin_sets()


def begin_generation(rank: int, size: int) -> None:
    """In place of what there was, in a generation of torch's default group. Of the sets that init()
    was given there are those whose ranks are all there.

    Raises:
        HorovodInternalError: the others were not found.
    """
    shutdown()
    with as_internal():
        _global_state.begin_generation(rank, size)
    _begin_sets()


def _begin_sets() -> None:
    size = _global_state.required().me.size
    try:
        _sets.begin([one for one in _initial if max(one.ranks or [0]) < size], alike=is_elastic())
        _timeline.begin()
    except BaseException:
        shutdown()
        raise


def shutdown() -> None:
    """Wait for the operations in flight, and leave the groups. Nothing if there is no init()."""
    world = _global_state.end()
    if world is None:
        return
    try:
        if world.timeline is not None:
            _timeline.finish(world)
    finally:
        leave()
        _sets.end()


def leave() -> None:
    """The groups, so that the others hear of it; ranks and sizes stay as they were."""
    for group in _sets.take_groups():
        group.close()


def is_initialized() -> bool:
    """Whether init() was called, and shutdown() not since."""
    return _global_state.current() is not None


def rank() -> int:
    """Of this process in the job. Here and below: ValueError, not initialized."""
    return _global_state.required().me.rank


def size() -> int:
    """Ranks of the job."""
    return _global_state.required().me.size


def local_rank() -> int:
    """Among those of this host."""
    return _global_state.required().where.local_rank


def local_size() -> int:
    """Ranks of this host."""
    return _global_state.required().where.local_size


def cross_rank() -> int:
    """Of this host, among those that have a rank of this local rank."""
    return _global_state.required().where.cross_rank


def cross_size() -> int:
    """Hosts that have a rank of this local rank."""
    return _global_state.required().where.cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have as many ranks."""
    return _global_state.required().where.homogeneous


def mpi_threads_supported() -> bool:
    """False: there is no MPI here."""
    return False


def mpi_enabled() -> bool:
    """False: there is no MPI here."""
    return False


def mpi_built() -> bool:
    """False: there is no MPI here."""
    return False


def gloo_enabled() -> bool:
    """True, which to scripts means that no MPI is needed."""
    return True


def gloo_built() -> bool:
    """True, which to scripts means that no MPI is needed."""
    return True


def nccl_built() -> int:
    """NCCL's version, as 22803, where this build has the CUDA library and finds it; else 0."""
    if not cuda_built() or torch.version.cuda is None:
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return major * 10000 + minor * 100 + patch


def ddl_built() -> bool:
    """False: IBM's DDL is not supported."""
    return False


def ccl_built() -> bool:
    """False: oneCCL is not supported."""
    return False


def cuda_built() -> bool:
    """Whether this build has the CUDA library."""
    return bool(_native.load().info()["cuda"]["state"] == "ok")


def rocm_built() -> bool:
    """False: ROCm is not supported."""
    return False
