"""Ranks that run sequences: a shared pool, and fresh processes for a sequence that failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from support.pool import Pool

from tests.differential.execute import execute
from tests.differential.plan import WORLD, Plan

# The backend reports a hang first, with details, and the pool reports it later.
GROUP_TIMEOUT = timedelta(seconds=20)
LIMIT = 45.0  # seconds per sequence


class Mismatch(AssertionError):
    """A sequence failed, and failed again alone in fresh processes."""


class Ranks:
    """Runs plans one after another in the same processes. A failure ends the processes."""

    def __init__(self, seconds: float = LIMIT) -> None:
        self._pool: Pool | None = None
        self._seconds = seconds

    def run(self, plan: Plan) -> str:
        """Returns the problem with its rank and the output of the ranks, or ""."""
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
    """Separates sequences that fail alone from those that fail only after others."""

    def __init__(self, make: Callable[[], Ranks] = Ranks) -> None:
        self._make = make
        self._shared = make()
        self.unrepeated: list[tuple[Plan, str]] = []

    def check(self, plan: Plan) -> None:
        """Raises Mismatch if `plan` fails twice. Adds failures that do not repeat to
        `unrepeated`."""
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
