"""Where sequences run: a pool of ranks that all share, and fresh processes for one that failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from support.pool import Pool

from tests.differential.execute import execute
from tests.differential.plan import WORLD, Plan

# What hangs is reported by the backend, which knows more about it, and then by the pool.
GROUP_TIMEOUT = timedelta(seconds=20)
LIMIT = 45.0  # seconds of a sequence


class Mismatch(AssertionError):
    """A sequence failed, also alone in fresh processes."""


class Ranks:
    """Runs plans one after the other in the same processes, which a failure ends."""

    def __init__(self, seconds: float = LIMIT) -> None:
        self._pool: Pool | None = None
        self._seconds = seconds

    def run(self, plan: Plan) -> str:
        """What went wrong, on which rank, and what the ranks printed; or ""."""
        if self._pool is None:
            self._pool = Pool(WORLD, timeout=GROUP_TIMEOUT)
        try:
            self._pool.run(execute, plan.to_json(), timeout=self._seconds)
        except AssertionError as error:
            self._pool = None
            return str(error)
        return ""

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class Checker:
    """Tells sequences that fail by themselves from those that need what ran before them."""

    def __init__(self, make: Callable[[], Ranks] = Ranks) -> None:
        self._make = make
        self._shared = make()
        self.unrepeated: list[tuple[Plan, str]] = []

    def check(self, plan: Plan) -> None:
        """Raises Mismatch; fills `unrepeated` with what does not fail a second time."""
        problem = self._shared.run(plan)
        if not problem:
            return
        alone = self._make()
        try:
            again = alone.run(plan)
        finally:
            alone.close()
        if again:
            raise Mismatch(again)
        self.unrepeated.append((plan, problem))

    def close(self) -> None:
        self._shared.close()
