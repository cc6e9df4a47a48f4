"""start_timeline() and stop_timeline(), which record the operations of all ranks in a file."""

from __future__ import annotations

import atexit
import os
import warnings
from pathlib import Path

from torch_ringdist import _timeline
from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._errors import as_internal
from torch_ringdist.horovod._launch_info import is_elastic, number_of

GATHER_TIME = 60.0  # seconds to wait for the records of other ranks


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts recording on all ranks if this is rank 0; on other ranks it does nothing.

    Each rank writes ``file_path.rank-N``, in the folder for temporary files if that folder does not
    exist on its host. The final file has a row for each name, such as "allreduce.NAME", on each
    rank. NEGOTIATE_ALLREDUCE lasts from the call until all ranks have made it, and shows the last
    rank. ALLREDUCE follows. A row per group shows the executed operations.

    If a timeline is active, its file is written first, as by stop_timeline(). If the file cannot be
    written, it warns and records nothing, because the other ranks continue.

    Args:
        file_path: the file that stop_timeline() writes, for ui.perfetto.dev or chrome://tracing.
        mark_cycles: also add a mark, CYCLE_START, for each batch.

    Raises:
        ValueError: init() was not called.
    """
    world = _global_state.required()
    if world.me.rank != 0:
        return
    path = Path(os.path.abspath(file_path))  # without "..", which other ranks refuse
    parts = _parts(path, world.me.size)
    try:
        if not file_path or path.is_dir():
            raise OSError("it is none")
        with parts[0].open("ab"):  # this rank opens it later, when an error would fail the group
            pass
    except OSError as error:
        warnings.warn(
            "ringdist: start_timeline: nothing is recorded: file_path must be a file in a folder "
            f"that can be written to, got {file_path!r}: {error}",
            stacklevel=2,
        )
        return
    if world.timeline is not None:
        finish(world)
    for part in parts:  # left by an earlier run
        part.unlink(missing_ok=True)
    with as_internal():
        world.whole.named.start_timeline(str(path), mark_cycles)
    world.timeline = path
    atexit.register(_finish_at_exit, os.getpid())


def begin() -> None:
    """Starts the timeline that HOROVOD_TIMELINE requests; called by init(). It ends with shutdown()
    or the process."""
    path = os.environ.get("HOROVOD_TIMELINE", "")
    if path in ("", "DYNAMIC"):  # the latter waits for start_timeline()
        return
    if is_elastic():
        warnings.warn(
            "ringdist: HOROVOD_TIMELINE: not where ranks come and go; call start_timeline() in the "
            "training function, and stop_timeline() before ranks change",
            stacklevel=4,
        )
        return
    start_timeline(path, number_of(os.environ, "HOROVOD_TIMELINE_MARK_CYCLES") == 1)
    if _global_state.required().me.rank != 0:
        atexit.register(_leave, os.getpid())  # rank 0 waits for the records of this rank


def _leave(process: int) -> None:
    if process == os.getpid() and (world := _global_state.end()) is not None:
        world.whole.close()


def _finish_at_exit(process: int) -> None:
    world = _global_state.current()
    if process == os.getpid() and world is not None and world.timeline is not None:
        finish(world)


def stop_timeline() -> None:
    """Stops recording on all ranks and writes the complete file, if this is rank 0.

    On other ranks, and without a timeline, it does nothing.

    Raises:
        ValueError: init() was not called.
    """
    world = _global_state.required()
    if world.timeline is not None:  # only on rank 0
        finish(world)


def finish(world: _global_state.GlobalState) -> None:
    """Implements stop_timeline() for a state with a timeline. If records of other ranks are
    missing, it warns and keeps the files of the ranks."""
    path, world.timeline = world.timeline, None
    assert path is not None
    lacks = f"not all of it came within {GATHER_TIME:g} s"
    try:
        if world.whole.named.stop_timeline(GATHER_TIME):
            lacks = ""
    except RuntimeError as error:
        lacks = str(error)
    parts = [part for part in _parts(path, world.me.size) if part.exists()]
    try:
        _timeline.merge(parts, path)
        for part in parts if not lacks else ():
            part.unlink()
    except (OSError, _timeline.TimelineError) as error:
        lacks = str(error)
    if lacks:
        warnings.warn(f"ringdist: the timeline {path} is not complete: {lacks}", stacklevel=3)


def _parts(path: Path, size: int) -> list[Path]:
    return [_timeline.part_of(path, rank) for rank in range(size)]
