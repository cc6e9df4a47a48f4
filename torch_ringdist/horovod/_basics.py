"""init(), shutdown(), and functions that describe this rank and this build."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_ringdist import _native
from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod import _global_state, _sets, _timeline
from torch_ringdist.horovod._errors import as_internal
from torch_ringdist.horovod._launch_info import is_elastic, launched

_initial: list[_sets.ProcessSet] = []  # process sets given to init()


def init(
    comm: Sequence[int] | None = None,
    process_sets: Sequence[_sets.ProcessSet] | str | None = None,
) -> None:
    """Finds the other ranks by the variables of torchrun, OpenMPI or Slurm.

    Without such variables, this process is a job of one rank. All ranks call it. A second call does
    nothing; after shutdown() it starts again. The default group of torch is not used. In an elastic
    job, this process is alone until elastic.run trains.

    Args:
        comm: None, or all ranks in order. It stands for an MPI communicator, which does not exist
            here.
        process_sets: initial process sets, the same on all ranks. Horovod's "dynamic" means none,
            because sets may always be added later.

    Raises:
        ValueError: `comm` has another value, a variable is invalid, or the host of rank 0 is
            missing. Also if process sets differ between ranks, are duplicates, or have ranks that
            do not exist.
        HorovodInternalError: the other ranks were not found.
    """
    if _global_state.current() is not None:
        return
    size = launched().size
    if comm is not None and list(comm) != list(range(size)):
        raise ArgumentError(
            f"hvd.init: comm must be None, or all ranks in their order; got {comm!r}: there is no "
            "MPI here; use process_sets= for some ranks"
        )
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ArgumentError(
            "hvd.init: process_sets must be None, 'dynamic' or a list of hvd.ProcessSet; got "
            f"{process_sets!r}"
        )
    sets = [] if isinstance(process_sets, str) else list(process_sets or ())
    if not is_elastic():
        _sets.check(sets, size)
    with as_internal():
        _global_state.begin()
    _initial[:] = sets
    _begin_sets()


def begin_generation(rank: int, size: int) -> None:
    """Replaces the groups by those of a generation of torch's default group.

    Process sets of init() are created if all their ranks exist.

    Raises:
        HorovodInternalError: the other ranks were not found.
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
    """Waits for the operations in flight and leaves the groups. Without init() it does nothing."""
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
    """Leaves the groups, which the other ranks notice. Ranks and sizes remain valid."""
    for group in _sets.take_groups():
        group.close()


def is_initialized() -> bool:
    """Returns True between init() and shutdown()."""
    return _global_state.current() is not None


def rank() -> int:
    """Returns the rank of this process in the job. This and later functions raise ValueError before
    init()."""
    return _global_state.required().me.rank


def size() -> int:
    """Returns the number of ranks of the job."""
    return _global_state.required().me.size


def local_rank() -> int:
    """Returns the rank of this process on its host."""
    return _global_state.required().where.local_rank


def local_size() -> int:
    """Returns the number of ranks on this host."""
    return _global_state.required().where.local_size


def cross_rank() -> int:
    """Returns the index of this host among the hosts that have a rank with this local rank."""
    return _global_state.required().where.cross_rank


def cross_size() -> int:
    """Returns the number of hosts that have a rank with this local rank."""
    return _global_state.required().where.cross_size


def is_homogeneous() -> bool:
    """Returns True if all hosts have the same number of ranks."""
    return _global_state.required().where.homogeneous


def mpi_threads_supported() -> bool:
    """Returns False, because there is no MPI here."""
    return False


def mpi_enabled() -> bool:
    """Returns False, because there is no MPI here."""
    return False


def mpi_built() -> bool:
    """Returns False, because there is no MPI here."""
    return False


def gloo_enabled() -> bool:
    """Returns True, which scripts read as "no MPI needed"."""
    return True


def gloo_built() -> bool:
    """Returns True, which scripts read as "no MPI needed"."""
    return True


def nccl_built() -> int:
    """Returns NCCL's version, such as 22803, if this build has the CUDA library and finds NCCL;
    else 0."""
    if not cuda_built() or torch.version.cuda is None:
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return major * 10000 + minor * 100 + patch


def ddl_built() -> bool:
    """Returns False, because IBM's DDL is not supported."""
    return False


def ccl_built() -> bool:
    """Returns False, because oneCCL is not supported."""
    return False


def cuda_built() -> bool:
    """Returns True if this build has the CUDA library."""
    return bool(_native.load().info()["cuda"]["state"] == "ok")


def rocm_built() -> bool:
    """Returns False, because ROCm is not supported."""
    return False
