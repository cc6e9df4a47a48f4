"""elastic.run: joins the job of elastic.init() when a training function is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import torch.distributed as dist

from torch_ringdist._errors import ArgumentError
from torch_ringdist.elastic._elastic_loop import ElasticLoop
from torch_ringdist.elastic._join_coordinator import JoinCoordinator
from torch_ringdist.elastic._settings import Settings
from torch_ringdist.elastic._state import State

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


class _Job:
    """Holds the result of elastic.init(), and the settings of the last finished training."""

    settings: Settings | None = None
    entry: JoinCoordinator | None = None
    finished: Settings | None = None


_job = _Job()


def set_job(settings: Settings) -> None:
    """Stores the job for the next call of a training function.

    Raises:
        ArgumentError: this process has finished a training of the same job.
        torch.distributed.DistError: as JoinCoordinator().
    """
    if (done := _job.finished) is not None and _place(done) == _place(settings):
        raise ArgumentError(
            "ringdist: elastic.init: this process has trained already, and a job is launched for "
            "one training function"
        )
    _job.entry = JoinCoordinator(settings)
    _job.settings = settings


def _place(settings: Settings) -> tuple[str, int, str]:
    return settings.host, settings.port, settings.job


def run(
    function: Callable[Concatenate[State, _Rest], _Result],
) -> Callable[Concatenate[State, _Rest], _Result]:
    """Decorator that calls the training function again in each generation of the group.

    Called with a State, the function joins the group of the job, or creates it, and runs
    `function(state)` once all ranks have the same state. Further arguments are passed to `function`
    each time. When a rank is lost, joins or leaves, an operation of the group raises
    torch.distributed.DistError in `function`, which must not catch it. The remaining ranks then
    agree on the members and return to the latest state that any of them has committed. Then they
    call `function` again. Objects that it builds on the group, such as DDP and other groups, are
    built again each time.

    Returns:
        The result of `function`, once it has returned on all ranks. The default group still exists
        and does not change any more.

    Raises:
        ArgumentError: elastic.init() was not called. Also if entries of the State, shapes, the
            sampler's data or min_ranks differ from those of the others; only this rank raises, and
            they continue. Also if ranks that have trained the same steps differ, or if a change
            cannot be undone with State(copy=False), or if `function` destroys the default group.
        torch.distributed.DistError: the others excluded this process, or too few ranks are left to
            decide ("no quorum"). It can return as a new process.
        RuntimeError: fewer than min_ranks for rejoin_timeout. The state was saved. Also if a member
            sends something else than ranks exchange; the message names it.
        SystemExit: this process received SIGTERM, has handed over and left. Also if the job had
            finished before it came.
    """

    @functools.wraps(function)
    def entered(state: State, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Result:
        if _job.settings is None or _job.entry is None:
            raise ArgumentError(
                "ringdist: elastic.run: call elastic.init() first; it is good for one call of a "
                "training function, as a job is launched for one"
            )
        if not isinstance(state, State):
            raise TypeError(
                "ringdist: elastic.run: the training function's first argument is an "
                f"elastic.State, got {type(state).__name__}"
            )
        if dist.is_initialized():
            raise ArgumentError(
                "ringdist: elastic.run: this process has a default group already; elastic.run "
                "makes it, in place of init_process_group"
            )
        entry, _job.entry = _job.entry, None
        loop = ElasticLoop(_job.settings, entry, state)
        result = loop.run(lambda state: function(state, *args, **kwargs))
        _job.finished = _job.settings
        return result

    return entered
