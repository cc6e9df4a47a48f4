"""The final report, and the success of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.conformance import lists
from tests.conformance.client import Result

# by world size, then backend, then test
Table = Mapping[int, Mapping[str, Mapping[str, Result]]]


def counts(table: Table) -> str:
    lines = [f"{'ranks':>5}  {'backend':10}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for world_size, backends in table.items():
        for backend, results in backends.items():
            outcome = Counter(result.outcome for result in results.values())
            seconds = sum(result.seconds for result in results.values())
            lines.append(
                f"{world_size:>5}  {backend:10}{outcome['passed']:>8}{outcome['failed']:>8}"
                f"{outcome['skipped']:>9}{seconds:>9.0f}"
            )
    return "\n".join(lines)


def skips(table: Table) -> str:
    lines = []
    for world_size, backends in table.items():
        for backend, results in backends.items():
            reasons = Counter(r.reason for r in results.values() if r.outcome == "skipped")
            lines += [f"skipped: {backend}, {world_size} ranks"] if reasons else []
            lines += [f"{count:>5}  {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _failures(results: Mapping[str, Result]) -> dict[str, Result]:
    return {test: result for test, result in results.items() if result.outcome == "failed"}


def failures(table: Table) -> str:
    lines = []
    for world_size, backends in table.items():
        for backend, results in backends.items():
            failed = _failures(results)
            lines += [f"failed: {backend}, {world_size} ranks"] if failed else []
            lines += [f"       {test}: {result.reason[:150]}" for test, result in failed.items()]
    return "\n".join(lines)


def is_refused(refused: Mapping[str, str], test: str, result: Result) -> bool:
    """Returns True if torch rejected the test with the documented words, before it called the
    backend."""
    words = lists.find(dict(refused), test)
    return bool(words) and words in result.reason + result.detail


def missing(table: Table, refused: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns tests that gloo passes and ringdist does not: (documented, others), one line each.

    Without results of gloo, these are all failures of ringdist.
    """
    documented, others = [], []
    for world_size, backends in table.items():
        gloo = backends.get("gloo")
        for test, result in backends.get("ringdist", {}).items():
            asked = gloo is None or (test in gloo and gloo[test].outcome == "passed")
            if (
                result.outcome == "passed"
                or not asked
                or (gloo is None and result.outcome == "skipped")
            ):
                continue
            known = is_refused(refused, test, result)
            line = f"{world_size} ranks: {test}: {result.outcome}: {result.reason[:150]}"
            (documented if known else others).append(line)
    return documented, others
