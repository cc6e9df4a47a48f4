"""``ringdist status``: the rank that others wait for, and the state of each rank."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch_ringdist import _flight_recorder, _snapshot, _statistics
from torch_ringdist._dump import WITH_OPS, WITH_STACK, WITH_STATISTICS, DumpError
from torch_ringdist._printable import escaped
from torch_ringdist._snapshot import GroupState, Process, Snapshot
from torch_ringdist._units import counted, table

_DESCRIPTION = """\
The state of this user's jobs that have a rank on this machine: which rank the others wait for, in
which operation and since when; at which line of which file that rank is; and a row per rank, on all
hosts. Root sees the jobs of all users. Ranks answer from a thread of their own, also if their
Python code hangs. It takes less than a second."""

_EXAMPLES = """\
examples:
  ringdist status              all jobs of this user with a rank on this machine
  ringdist status 4711         the job of process 4711 alone
  ringdist status --watch      the same every second, until Ctrl-C
  ringdist status --flight-recorder fr && torchfrtrace fr
      Compare the operations of all ranks: which one has another shape, or is missing.
  ringdist status --statistics     which operations take the time, and who waits for whom
  ringdist status --json | jq '.jobs[0].missing'
"""

_WATCH = 1.0  # seconds between two snapshots
_NAMED = 3  # ranks that the diagnosis describes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    add = parser.add_argument
    add("pid", type=int, nargs="?", metavar="PID", help="a process of the job; default: all jobs")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--watch", action="store_true", help="show it anew every second (needs rich)")
    add(
        "--statistics",
        action="store_true",
        help="also how many operations of each size there were, how long they took and waited, and "
        "the data exchanged with each peer, since the first group",
    )
    add(
        "--flight-recorder",
        type=Path,
        metavar="DIR",
        help="also write the last 2000 operations of each rank as files for torchfrtrace",
    )


def run(args: argparse.Namespace) -> None:
    """Prints the status of the jobs.

    Raises:
        DumpError: a process does not answer.
        ImportError: --watch lacks rich.
        ValueError: options that exclude each other, or several jobs for --flight-recorder.
        OSError: the files of --flight-recorder cannot be written.
    """
    folder = args.flight_recorder
    if args.watch and (args.json or folder or args.statistics):
        raise ValueError("--watch goes without --json, --flight-recorder and --statistics")
    if args.watch:
        return _watch(args.pid)
    details = WITH_STACK
    details |= (WITH_OPS if folder else 0) | (WITH_STATISTICS if args.statistics else 0)
    snapshots, problems = _snapshot.take(args.pid, details=details)
    if folder is not None:
        if len(snapshots) != 1:
            raise ValueError(
                f"--flight-recorder writes the files of one job, and {len(snapshots)} are here: "
                "add the PID of one of its processes"
            )
        files = _flight_recorder.write(snapshots[0], folder)
        print(f"{counted(len(files), 'file')} in {folder}: torchfrtrace {folder}", file=sys.stderr)
    if args.json:
        jobs = [as_json(one) for one in snapshots]
        print(json.dumps({"version": 1, "jobs": jobs, "problems": problems}, indent=2))
    else:
        print(_text(snapshots, []))
    if problems:
        raise DumpError(escaped("\n".join(problems)))


def _text(snapshots: Iterable[Snapshot], problems: Iterable[str]) -> str:
    return escaped("\n\n".join([*map(as_text, snapshots), *problems]))


def _watch(pid: int | None) -> None:
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        raise ImportError(
            "--watch needs rich: pip install 'torch-ringdist[watch]', or use watch(1)"
        ) from None
    with Live(auto_refresh=False, screen=True) as live:
        while True:
            try:
                text = _text(*_snapshot.take(pid, details=WITH_STACK))
            except DumpError as error:
                text = escaped(str(error))
            live.update(Text(f"{time.strftime('%X')}  Ctrl-C ends\n\n{text}"), refresh=True)
            time.sleep(_WATCH)


@dataclass(frozen=True)
class Diagnosis:
    """The operation that holds a job up.

    Attributes:
        group, op, call: the operation in which ranks wait; 0 and "" if nobody waits.
        waiting: the ranks of the group that wait in it.
        missing: the processes that they wait for, by rank in that group.
        text: status of one of them, in words.
        age: seconds since the longest of these waits began.
    """

    group: str = ""
    op: int = 0
    call: str = ""
    text: str = ""
    waiting: tuple[int, ...] = ()
    missing: tuple[tuple[int, Process], ...] = ()
    age: float = 0.0


def diagnosis_of(snapshot: Snapshot) -> Diagnosis:
    """Returns the operation in which ranks wait for one that waits for none itself. If there is
    none, such as in a deadlock of sends and receives, it is the oldest one."""
    members: dict[str, dict[int, Process]] = {}
    waits: dict[tuple[str, int], dict[int, GroupState]] = {}
    for process in snapshot.processes:
        for group in process.groups:
            members.setdefault(group.id, {})[group.rank] = process
            if group.state == "waits":  # sends and receives have no number
                key = group.id, group.op or -1 - group.rank
                waits.setdefault(key, {})[group.rank] = group
    found = []
    for (group_id, _), waiting in waits.items():
        first = next(iter(waiting.values()))
        awaited = {rank for one in waiting.values() for rank in one.ranks} - waiting.keys()
        known = [(rank, members[group_id].get(rank)) for rank in sorted(awaited)]
        found.append(
            Diagnosis(
                group=first.name,
                op=first.op,
                call=first.call,
                text=first.text,
                waiting=tuple(sorted(waiting)),
                missing=tuple((rank, one) for rank, one in known if one is not None),
                age=max(one.age for one in waiting.values()),
            )
        )

    def urgency(one: Diagnosis) -> tuple[bool, float]:
        return any(process.state != "waits" for _, process in one.missing), one.age

    return max(found, key=urgency, default=Diagnosis())


def diagnosis_lines(snapshot: Snapshot) -> list[str]:
    """Returns the two lines of the diagnosis."""
    found = diagnosis_of(snapshot)
    if not found.waiting:
        return _without_waits(snapshot)
    count = len(found.waiting)
    who = _numbers(found.waiting) + (" waits" if count == 1 else " wait")
    what = f"{who} in {found.call} of group '{found.group}' since {found.age:.1f} s"
    if not found.missing:
        wait = found.text.partition(" s for ")[2] or found.text
        return [what, f"{'it waits' if count == 1 else 'they wait'} for {wait}"]
    missing = _numbers([rank for rank, _ in found.missing])
    lines = [_described(rank, one) for rank, one in found.missing[:_NAMED]]
    more = len(found.missing) - _NAMED
    return [f"{what}, for {missing}", "; ".join(lines) + (f"; and {more} more" if more > 0 else "")]


def _without_waits(snapshot: Snapshot) -> list[str]:
    gone = [one for one in snapshot.processes if one.state in ("stopped", "silent", "lost", "busy")]
    if gone:
        return [
            "no rank waits in an operation, and some do not answer as they should",
            "; ".join(_described(snapshot.ranks.get(one.context), one) for one in gone[:_NAMED]),
        ]
    failed = [one for one in snapshot.processes if one.state == "failed" and one.group]
    if failed and (group := failed[0].group):
        return [f"group '{group.name}' has failed", group.text.removeprefix("failed: ")]
    runs = sum(one.state == "runs" for one in snapshot.processes)
    return [
        "no rank waits for another one",
        f"{runs} of {len(snapshot.processes)} processes are in an operation that makes progress",
    ]


def _numbers(ranks: Sequence[int]) -> str:
    """Returns "rank 2", or "ranks 0-3, 6"."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    texts = [f"{one[0]}-{one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in parts]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(texts)


def _described(rank: int | None, process: Process) -> str:
    who = f"rank {rank} " if rank is not None else ""
    who += f"(pid {process.pid} on {process.host})"
    where = _where(process)
    text = f"{who} {_STATES.get(process.state, process.state)}"
    if process.state == "waits" and process.group:
        text = f"{who} waits in {process.group.call} of group '{process.group.name}'"
    if process.state == "stopped":
        text += f": kill -CONT {process.pid} lets it go on"
    elif process.state == "silent" and process.silent_for is not None:
        text += f", and nothing has come from it for {process.silent_for:.1f} s"
    if process.cause:
        text += f": {process.cause}"
    if where:
        text += f", at {where}" + (f": {process.source}" if process.source else "")
    return text


_STATES = {
    "elsewhere": "is in no operation",
    "runs": "is in an operation",
    "busy": "has a progress thread that does not answer",
    "stopped": "is stopped, by a signal or a debugger",
    "silent": "does not answer: its host or its link may be down",
    "lost": "is lost",
    "left": "has left the group",
    "failed": "has a group that failed",
}


def _where(process: Process) -> str:
    return str(process.at) if process.at else ""


def _state(process: Process) -> str:
    """Returns the state of a process for its row, without its age."""
    group = process.group
    if group is None:
        return process.state + (f" ({process.cause})" if process.cause else "")
    what = group.call or group.text
    return f"{process.state} in {what}" + (
        f" for {_numbers(group.ranks)}" if group.state == "waits" and group.ranks else ""
    )


def as_text(snapshot: Snapshot) -> str:
    """Returns the diagnosis, and a row for each set of ranks in the same state."""
    rows: dict[tuple[str, str], list[Process]] = {}
    for process in snapshot.processes:
        rows.setdefault((_state(process), _where(process)), []).append(process)
    lines = [("ranks", "processes", "for", "state", "at")]
    for (state, where), processes in rows.items():
        ranks = [snapshot.ranks[one.context] for one in processes if one.context in snapshot.ranks]
        lines.append(
            (
                _numbers(ranks).split(" ", 1)[1] if ranks else "-",
                _processes(processes),
                _age(processes),
                state,
                where or "-",
            )
        )
    late = [f"straggler: {one.text}" for one in snapshot.stragglers]
    late += [f"slow link: {one.text}" for one in snapshot.slow_links]
    return "\n".join([*diagnosis_lines(snapshot), *late, "", *table(lines), *_figures(snapshot)])


def _figures(snapshot: Snapshot) -> list[str]:
    """Returns the statistics, if they were requested."""
    known = [
        (snapshot.ranks.get(one.context), one.statistics)
        for one in snapshot.processes
        if one.statistics is not None
    ]
    return ["", _statistics.as_text(known)] if known else []


def _processes(processes: Sequence[Process]) -> str:
    if len(processes) == 1:
        return f"{processes[0].host}:{processes[0].pid}"
    hosts = {one.host for one in processes}
    host = next(iter(hosts)) if len(hosts) == 1 else f"{len(hosts)} hosts"
    return f"{len(processes)} on {host}"


def _age(processes: Sequence[Process]) -> str:
    ages = [one.group.age if one.group else one.silent_for for one in processes]
    known = [age for age in ages if age is not None]
    return f"{max(known):.1f} s" if known else "-"


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the same for programs. Its keys are stable; docs/reference/command-line.md lists
    them."""
    diagnosis = diagnosis_of(snapshot)
    return {
        "diagnosis": diagnosis_lines(snapshot),
        "seconds": snapshot.seconds,
        "group": diagnosis.group,
        "op": diagnosis.op,
        "call": diagnosis.call,
        "waiting": diagnosis.waiting,
        "missing": [_process_json(rank, one) for rank, one in diagnosis.missing],
        "stragglers": [asdict(one) for one in snapshot.stragglers],
        "slow_links": [asdict(one) for one in snapshot.slow_links],
        "processes": [
            _process_json(snapshot.ranks.get(one.context), one) for one in snapshot.processes
        ],
    }


def _process_json(rank: int | None, process: Process) -> dict[str, Any]:
    at = asdict(process.at) | {"source": process.source} if process.at else None
    rest = {
        key: value
        for key, value in asdict(process).items()
        if key not in ("ops", "stragglers", "slow_links")
    }
    return {"rank": rank, **rest, "at": at}
