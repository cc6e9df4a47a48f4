"""Loop around a training function: one iteration per generation of the group."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

import torch_ringdist
from torch_ringdist._errors import ArgumentError
from torch_ringdist._units import counted
from torch_ringdist.elastic import _checkpoint, _group, _leave, _log, _rank_state
from torch_ringdist.elastic._join_coordinator import JoinCoordinator
from torch_ringdist.elastic._messages import MessageError
from torch_ringdist.elastic._newcomers import Newcomers
from torch_ringdist.elastic._rank_state import GenerationView, RankState
from torch_ringdist.elastic._settings import Settings
from torch_ringdist.elastic._state import Change, State
from torch_ringdist.elastic._transfer import hand_over, transfer

_Result = TypeVar("_Result")
_POLL = 0.05  # seconds between two checks while ranks wait
_MEMBERS_CHANGE = "members were lost, or newcomers wait"  # another rank has begun the change
_RETRIES = 3  # retries of a step that fails without a visible cause


class ElasticLoop:
    """Runs one training function in this process through the generations of the group."""

    def __init__(self, settings: Settings, entry: JoinCoordinator, state: State) -> None:
        self._settings, self._join_coordinator, self._state = settings, entry, state
        self._id = uuid.uuid4().hex
        self._generation = 0
        self._lost: tuple[str, ...] = ()
        self._leaving: list[int] = []  # ranks that hand over their residuals and leave
        self._veteran = self._finished = self._leaves = False
        self._result: Any = None
        # Errors without a visible cause, and the number of steps before them.
        self._retries, self._retried_at = 0, -1
        self._rests_since = 0.0  # start of waiting for ranks; 0 while training
        self._newcomers = Newcomers()
        self._start_ranks = settings.start_ranks

    # Joins or creates the group, then runs the function until it has returned on all ranks.
    #
    # Returns and raises as run() documents.
    def run(self, function: Callable[[State], _Result]) -> _Result:
        with _leave.signals():
            if self._settings.resume and not self._join_coordinator.is_training:
                _checkpoint.resume(self._state, self._settings.checkpoint)
            self._state._take()  # the state may have changed since it was created
            self._generation = self._join_coordinator.enter(self._terms())
            self._newcomers.has_met = self._generation == 0
            _leave.set_member(True)
            try:
                while not self._is_over(function):
                    pass
                return self._result
            except BaseException:
                self._give_up()
                raise
            finally:
                self._join_coordinator.end_beats()
                self._state._end()
                _leave.set_member(False)

    def _is_over(self, function: Callable[[State], Any]) -> bool:
        """Runs a generation until it ends; returns True if training is over."""
        try:
            return self._live(function)
        except _leave.Leave:
            self._leaves = True
            cause: Exception | None = None
        except dist.DistError as error:
            # Drops the traceback, because its frames hold a model of the previous generation.
            cause = error.with_traceback(None)
            cause.__cause__ = cause.__context__ = None
            self._leaves = _leave.leave_was_asked()
        if not self._finished:  # after the last step, training may be over, so later changes stay
            self._state._put_back()
        self._next(cause)
        return False

    def _live(self, function: Callable[[State], Any]) -> bool:
        """Runs one generation. Returns True if all ranks have finished, False if all must meet
        again in it."""
        state = self._state
        company = self._meet()
        if dist.get_rank() == 0:
            self._join_coordinator.begin_beats()
        if company.all_finished:
            self._join_coordinator.finish()
            return True
        if self._finished:  # others continue; undo changes after the last step
            self._finished = False
            state._put_back()
        if company.has_trained:
            self._join_coordinator.has_trained()
        elif company.leaving:
            self._part(company)
        elif self._too_few(company.start_ranks):
            if dist.get_rank() == 0:
                self._join_coordinator.check_may_begin()
            return self._rest("the first step", company.start_ranks)
        elif dist.get_rank() == 0:
            self._join_coordinator.begin_training()
            steps = company.standings[company.source].steps
            _checkpoint.warn_of_ignored(self._settings.checkpoint, steps)
        if company.any_needs_state:
            transfer(state, company)
        if not company.has_trained:
            dist.barrier()  # either all ranks have the state, or none
        self._veteran = True
        state._begin(dist.get_rank(), dist.get_world_size())
        self._tell(company)
        if company.leaving:
            self._part(company)
        if self._too_few(self._settings.min_ranks):
            self._save()
            return self._rest("the next step", self._settings.min_ranks)
        self._rests_since = 0.0
        self._call_back(company)
        self._result = self._train(function)
        if not dist.is_initialized():
            raise ArgumentError(
                "ringdist: elastic.run: the training function has destroyed the default group, "
                "which elastic.run needs to end: do so after it has returned"
            )
        self._finished = True
        # No rank leaves before all have come this far, because a lost rank may have had the last
        # step.
        dist.barrier()
        return False

    def _train(self, function: Callable[[State], Any]) -> Any:
        try:
            return function(self._state)
        except dist.DistError:
            raise
        except RuntimeError as error:
            # Python gradient hooks convert the error of a failed group to another type.
            if not _group.has_failed():
                raise
            raise dist.DistBackendError(str(error)) from error

    def _meet(self) -> GenerationView:
        """Exchanges the RankState of all ranks and checks that they match.

        Newcomers that sent bad data are excluded, and mismatched ranks end. Raises ArgumentError if
        ranks that have trained the same steps differ.
        """
        state, terms = self._state, self._terms()
        content = _rank_state.content_of(state) if self._veteran else {}
        mine = RankState(
            id=self._id,
            steps=state.steps,
            veteran=self._veteran,
            finished=self._finished,
            leaves=self._leaves,
            start_ranks=self._start_ranks,
            terms=_rank_state.hash_of(terms),
            content=_rank_state.hash_of(content) if self._veteran else "",
        )
        standings = _rank_state.exchange(mine)
        company = GenerationView(tuple(one for one in standings if one is not None))
        if self._newcomers.refuse_bad(standings):
            _group.until_they_go([])
        if mismatched_ranks := company.mismatched_ranks():
            try:
                _rank_state.refuse_mismatched(company, terms, dist.get_rank())
            except MessageError as error:
                self._newcomers.refuse_sender(error)
                _group.until_they_go([])
            differ = f"{_rank_state.ranks_text(mismatched_ranks)} differ from rank {company.source}"
            _log.event("refused", f"{differ} in what ranks agree on")
            _group.until_they_go(mismatched_ranks)
        self._newcomers.meet()
        if company.differ():
            _rank_state.raise_difference(company, content)
        return company

    def _part(self, company: GenerationView) -> None:
        """Takes the residuals of leaving ranks; then these leave, and the others wait for their
        departure."""
        rank = dist.get_rank()
        staying = [one for one in range(dist.get_world_size()) if one not in company.leaving]
        if not staying:
            if company.has_trained:
                self._save()
            self._go(last=True)
        self._retried_at, self._leaving = -1, company.leaving
        handed = hand_over(self._state, company, staying[0])
        if rank == staying[0] and handed:
            self._state._residuals.receive_all(handed)
        if rank in company.leaving:
            self._go()
        dist.barrier()  # includes the leaving ranks
        _group.until_they_go(company.leaving)

    # Leaves the group and ends the process with SystemExit. `last` is True if all ranks leave.
    def _go(self, last: bool = False) -> NoReturn:
        dist.barrier()  # the messages of this process have arrived
        if last:
            self._join_coordinator.all_leave()
        rank = dist.get_rank()
        _log.event("left", f"rank {rank} has left, as it was asked to", steps=self._state.steps)
        dist.destroy_process_group()
        raise SystemExit(_leave.STATUS)

    def _rest(self, until: str, wanted: int) -> bool:
        """Waits for more ranks until `wanted` are there.

        It raises when a rank joins or is lost, which ends the generation. It returns False when a
        rank leaves, or if the group has enough ranks for training after the rejoin_timeout.

        Raises:
            RuntimeError: fewer than min_ranks for the rejoin_timeout.
        """
        self._rests_since = self._rests_since or time.monotonic()
        size, limit = dist.get_world_size(), self._settings.rejoin_timeout.total_seconds()
        _log.event(
            "waiting", f"{size} of {wanted} ranks are there; {until} waits for more", size=size
        )
        while True:
            late = time.monotonic() - self._rests_since > limit
            leaves = _leave.leave_was_asked() and not self._leaves
            # The maximum over all ranks counts. 1 means too late, 2 means that a rank leaves.
            said = torch.tensor([2 if leaves else int(late)], dtype=torch.int64, device="cpu")
            dist.all_reduce(said, op=dist.ReduceOp.MAX)
            if said == 2:
                self._leaves = _leave.leave_was_asked()
                return False
            if said == 1 and not self._too_few(self._settings.min_ranks):
                self._start_ranks = size  # further start_ranks do not come in time
                return False
            if said == 1:
                where = self._settings.checkpoint
                saved = f"; the state is in {where}" if self._veteran and where else ""
                raise RuntimeError(
                    f"ringdist: elastic: {size} of {wanted} ranks are there, and {until} has "
                    f"waited for more for {limit:g} s (rejoin_timeout){saved}"
                )
            time.sleep(_POLL)

    def _next(self, cause: Exception | None) -> None:
        """Forms the next generation, after the error `cause` or because this process leaves. If
        steps keep failing without a visible cause, raises `cause`."""
        if cause is not None:
            steps, follows = self._state.steps, _MEMBERS_CHANGE in str(cause)
            text = "" if follows else f"the step after {steps} has failed: {cause}"
            _log.event("error", text, what=str(cause), steps=steps)
        self._newcomers.refuse_absent(cause)
        _, report = torch_ringdist.shrink(timeout=self._settings.rejoin_timeout)
        self._generation = report.generation
        self._newcomers.follow(report)
        causes = {one.rank: one.cause for one in report.lost}
        causes |= {rank: "left" for rank in self._leaving if rank in causes}
        self._lost += tuple(f"rank {rank} ({cause})" for rank, cause in causes.items())
        self._leaving = []
        if cause is None or report.lost or report.joined or report.store:
            return
        # Possible reasons: a rank leaves, a connection broke, or a newcomer is gone already.
        if self._retried_at != self._state.steps:
            self._retried_at, self._retries = self._state.steps, 0
        self._retries += 1
        if self._retries > _RETRIES:
            raise cause

    # Returns the values that all ranks must agree on.
    def _terms(self) -> dict[str, str]:
        return _rank_state.terms_of(self._state, self._settings.min_ranks)

    def _too_few(self, wanted: int) -> bool:
        return dist.get_world_size() < wanted

    # Saves the state in the checkpoint folder, if there is one. A failure to write is only logged.
    def _save(self) -> None:
        if self._settings.checkpoint is None:
            return
        try:
            where = self._state.save(self._settings.checkpoint)
        except dist.DistError:
            raise
        except RuntimeError as error:  # such as a full disk; waiting ranks continue
            _log.event("not_saved", str(error))
            return
        if dist.get_rank() == 0:
            text = f"saved step {self._state.steps} in {where}; the same command with --resume "
            _log.event("saved", f"{text}(RINGDIST_RESUME=1) goes on from there", where=where)

    # Logs the new generation, and publishes it in the store on rank 0.
    def _tell(self, company: GenerationView) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        self._join_coordinator.word = company.word
        if rank == 0:
            self._join_coordinator.go_on(self._generation, size, self._terms())
        joined = company.newcomers
        text = (
            f"generation {self._generation}: {counted(size, 'rank')}, "
            f"{counted(self._state.steps, 'step')} committed"
        )
        text += f"; gone: {', '.join(self._lost)}" if self._lost else ""
        text += f"; joined {_rank_state.ranks_text(joined)}" if joined else ""
        text += f"; {_rank_state.ranks_text(company.leaving)} leaving" if company.leaving else ""
        _log.event(
            "generation",
            text if rank == 0 else "",
            generation=self._generation,
            rank=rank,
            size=size,
            steps=self._state.steps,
            lost=self._lost,
            joined=joined,
            leaving=company.leaving,
        )

    def _call_back(self, company: GenerationView) -> None:
        change = Change(
            self._generation,
            dist.get_rank(),
            dist.get_world_size(),
            self._state.steps,
            self._lost,
            tuple(company.newcomers),
        )
        self._lost = ()
        for function in self._state._callbacks:
            function(change)

    @staticmethod
    def _give_up() -> None:
        """Aborts the group, so the others do not wait for this process if it continues to run."""
        if dist.is_initialized():
            dist.distributed_c10d._abort_process_group()
