"""elastic.run, Horovod's training loop on top of torch_ringdist.elastic."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch.distributed as dist

from torch_ringdist import elastic
from torch_ringdist.horovod import _basics, _global_state
from torch_ringdist.horovod._errors import HorovodInternalError, HostsUpdatedInterrupt
from torch_ringdist.horovod._launch_info import is_elastic, number_of
from torch_ringdist.horovod.elastic._state import State

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")
_StateT = TypeVar("_StateT", bound=State)
_USUAL_TIMEOUT = 600  # seconds, as in Horovod


class _Loop:
    """Calls a training function in each generation of the job's ranks."""

    def __init__(self, state: State, function: Callable[[], Any]) -> None:
        self._state, self._function = state, function
        state._elastic.on_change(self._on_change)

    def _on_change(self, change: elastic.Change) -> None:
        self._change = change

    def generation(self, _: elastic.State) -> Any:
        """Runs one generation. Raises torch.distributed.DistBackendError if another one must
        follow."""
        try:
            _basics.begin_generation(self._change.rank, self._change.size)
            _global_state.required().residuals = self._state._elastic._residuals
            self._state.on_reset()
            self._state.sync()
            return self._function()
        except (HorovodInternalError, HostsUpdatedInterrupt, dist.DistError) as error:
            _basics.leave()
            if not isinstance(error, HostsUpdatedInterrupt):
                self._state.restore()
            raise dist.DistBackendError(str(error)) from error
        except BaseException:
            _basics.leave()
            raise


def run(
    func: Callable[Concatenate[_StateT, _Rest], _Result],
) -> Callable[Concatenate[_StateT, _Rest], _Result]:
    """Decorator that calls the training function again whenever ranks were lost, join or leave.

    The function takes a State and any other arguments. Before each call, the ranks return to the
    latest commit of any of them. Survivors keep their order, so the oldest is rank 0. rank(),
    size() and the process sets of init() describe the present ranks. Callbacks are called, and all
    ranks get rank 0's state. Before the first call, this process is a job of one rank.

    The function returns when it has returned on all ranks. If the script was not launched for a
    changing number of ranks, it is called once, with the state of rank 0.

    Raises:
        TypeError: the first argument is not a State.
        ArgumentError: this process has trained already.
        HorovodInternalError: the others excluded this process, or an operation fails repeatedly
            although no rank is lost.
        RuntimeError: fewer than --min-np ranks for --elastic-timeout.
        SystemExit: this process received SIGTERM and has left, or the job is finished.
    """

    @functools.wraps(func)
    def entered(state: _StateT, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Result:
        if not isinstance(state, State):
            raise TypeError(
                "elastic.run: the training function's first argument is a State, got "
                f"{type(state).__name__}"
            )
        if not is_elastic():
            state.sync()
            return func(state, *args, **kwargs)
        timeout = number_of(os.environ, "HOROVOD_ELASTIC_TIMEOUT") or _USUAL_TIMEOUT
        loop = _Loop(state, lambda: func(state, *args, **kwargs))
        try:
            elastic.init(rejoin_timeout=timeout, checkpoint=None)
            result = elastic.run(loop.generation)(state._elastic)
        except dist.DistError as error:
            raise HorovodInternalError(str(error)) from error
        dist.destroy_process_group()  # the groups of this API remain
        return result

    return entered
