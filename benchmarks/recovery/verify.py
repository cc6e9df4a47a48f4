"""Checks that survivors of a run agree on members and results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from benchmarks.recovery.answer import Answer, Shrink
from benchmarks.recovery.plan import SIZE, Plan

Verify = Callable[[Plan, Sequence[Answer], Mapping[int, int]], list[str]]


def of_shrinks(plan: Plan, answers: Sequence[Answer], pids: Mapping[int, int]) -> list[str]:
    """Returns problems of the survivors. `pids` has the process ids of all ranks.

    With a second victim, some survivors may see one shrink that lost both, and others two shrinks.
    So the check compares the sum of all losses, and the last group.
    """
    found = [*_of_the_last_group(plan, answers)]
    for answer in answers:
        found += [f"rank {answer.rank}: {text}" for text in _of_the_losses(plan, answer, pids)]
    return found + _of_equal_shrinks(answers) + _of_the_first_unfinished(plan, answers)


def of_the_last_group(plan: Plan, answers: Sequence[Answer], _pids: Mapping[int, int]) -> list[str]:
    """Returns problems of survivors that report only the last group."""
    return _of_the_last_group(plan, answers)


def _of_the_last_group(plan: Plan, answers: Sequence[Answer]) -> list[str]:
    found = []
    for answer in answers:
        if answer.members != plan.survivors:
            found.append(
                f"rank {answer.rank}: its last group has {list(answer.members)}, "
                f"but {list(plan.survivors)} are left"
            )
        elif answer.members[answer.new_rank] != answer.rank:
            found.append(f"rank {answer.rank} has become {answer.new_rank} of {answer.members}")
    for what, values in (
        ("results", {answer.rank: answer.bits for answer in answers}),
        (
            "last generations",
            {a.rank: a.shrinks[-1].generation if a.shrinks else 0 for a in answers},
        ),
    ):
        if len(set(values.values())) > 1:
            found.append(f"the survivors' {what} differ: {values}")
    return found


def _of_the_losses(plan: Plan, answer: Answer, pids: Mapping[int, int]) -> list[str]:
    found, members, generation = [], tuple(range(SIZE)), 0
    for shrink in answer.shrinks:
        lost = [one.rank for one in shrink.lost]
        if not lost:
            found.append(f"generation {shrink.generation} has lost nobody; {shrink.error}")
        if shrink.begun_from != generation or shrink.generation <= generation:
            found.append(f"generation {shrink.generation} came after {generation}")
        if shrink.stayed != tuple(rank for rank in members if rank not in lost):
            found.append(
                f"generation {shrink.generation} has {list(shrink.stayed)}, "
                f"but lost {lost} of {list(members)}"
            )
        for one in shrink.lost:
            if (one.cause, one.pid) != ("died", pids[one.rank]):
                found.append(f"{one}, but rank {one.rank}, pid {pids[one.rank]}, was killed")
        members, generation = shrink.stayed, shrink.generation
    lost = sorted(one.rank for shrink in answer.shrinks for one in shrink.lost)
    if lost != sorted(plan.victims):
        found.append(f"all that was lost is {lost}, but {sorted(plan.victims)} were killed")
    return found


def _of_equal_shrinks(answers: Sequence[Answer]) -> list[str]:
    """Checks that all reports on the same pair of generations are equal."""
    by_step: dict[tuple[int, int], dict[int, Shrink]] = defaultdict(dict)
    for answer in answers:
        for shrink in answer.shrinks:
            by_step[shrink.begun_from, shrink.generation][answer.rank] = shrink
    return [
        f"the reports from generation {old} to {new} differ: {reports}"
        for (old, new), reports in by_step.items()
        if len(set(reports.values())) > 1
    ]


def _of_the_first_unfinished(plan: Plan, answers: Sequence[Answer]) -> list[str]:
    """Checks the first unfinished all_reduce of the first group. A second victim may have finished
    less than the survivors."""
    firsts = [(answer.rank, answer.shrinks[0]) for answer in answers if answer.shrinks]
    if not firsts:
        return []
    least = min(shrink.done for _, shrink in firsts) + 1
    return [
        f"rank {rank}: {shrink.first_unfinished} is the first unfinished all_reduce, but "
        f"{least} is the first that a survivor has not finished"
        for rank, shrink in firsts
        if shrink.first_unfinished > least
        or (len(plan.kills) == 1 and shrink.first_unfinished != least)
    ]
