"""Tracks new ranks until they have taken part in training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch_ringdist._shrink import ShrinkReport
from torch_ringdist.elastic import _group, _log
from torch_ringdist.elastic._messages import MessageError
from torch_ringdist.elastic._rank_state import RankState

_MEETINGS = 2  # failed meetings with newcomers, without a loss, before they are refused


class Newcomers:
    """Tracks the ranks of a generation that have not yet taken part in a successful meeting.

    Members exclude a newcomer that sends bad data. Each member does so by itself. The next
    generation is without that rank, whatever the others have received.

    Attributes:
        has_met: this process is not a newcomer itself. A newcomer leaves these decisions to the
            others.
    """

    def __init__(self) -> None:
        self.has_met = False
        self._unmet: set[int] = set()
        self._failed = 0  # failed meetings with them

    def follow(self, report: ShrinkReport) -> None:
        """Updates the ranks for the next generation."""
        stayed = enumerate(report.stayed)
        self._unmet = {new for new, old in stayed if old in self._unmet} | set(report.joined)
        if not (report.lost or report.joined or report.store):
            self._failed += bool(self._unmet)

    def meet(self) -> None:
        """Records a successful meeting; there are no newcomers afterwards."""
        self._unmet, self._failed, self.has_met = set(), 0, True

    def refuse_bad(self, standings: Sequence[RankState | None]) -> bool:
        """Excludes newcomers that sent bad data; returns True if there are any.

        Raises:
            RuntimeError: ranks that are not newcomers sent bad data.
        """
        bad = {rank for rank, one in enumerate(standings) if one is None}
        if older := sorted(bad - self._unmet if self.has_met else bad & {0}):
            raise RuntimeError(
                f"ringdist: elastic: ranks {older} have sent something else than where they "
                "stand: do all ranks run the same version of torch_ringdist?"
            )
        self._refuse(bad, "has sent something else than where it stands")
        # A newcomer that has trained since it joined has the steps and content of a member.
        veterans = {rank: one for rank, one in enumerate(standings) if one and one.veteran}
        known = {(veterans[r].steps, veterans[r].content) for r in veterans.keys() - self._unmet}
        liars = {
            rank
            for rank in veterans.keys() & self._unmet
            if (veterans[rank].steps, veterans[rank].content) not in known
        }
        if self.has_met or known:
            self._refuse(liars, "claims to have trained what no member has")
            bad |= liars
        return bool(bad)

    def refuse_sender(self, error: MessageError) -> None:
        """Excludes the newcomer that has sent something else.

        Raises:
            MessageError: it is not a newcomer.
        """
        if error.rank not in self._unmet if self.has_met else error.rank == 0:
            raise error
        self._refuse([error.rank], error.why)

    def refuse_absent(self, cause: Exception | None) -> None:
        """Excludes newcomers with which meetings failed repeatedly, the last one by `cause`."""
        if self._failed + 1 >= _MEETINGS and self._unmet:
            self._refuse(self._unmet, f"does not take part in its first meeting ({cause})")

    # Excludes the ranks, if this process is not a newcomer.
    def _refuse(self, ranks: Iterable[int], why: str) -> None:
        for rank in sorted(ranks) if self.has_met else ():
            text = f"newcomer refused: rank {rank} {why}"
            _log.event("refused", text, rank=rank)
            _group.give_up(rank, text)
