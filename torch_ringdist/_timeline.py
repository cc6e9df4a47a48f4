"""Merges the timelines of ranks into one file for chrome://tracing or ui.perfetto.dev.

Each rank writes events of Chrome's trace format, one per line (csrc/base/trace_file.h). Times are
microseconds of its own monotonic clock. The file of a killed rank is readable up to its last
complete line.
"""

from __future__ import annotations

import argparse
import bisect
import glob
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_ringdist._output_paths import check_writable, replacing
from torch_ringdist._progress_bar import Bar
from torch_ringdist._units import counted

_SAME_CLOCK = 1e6  # microseconds; largest difference of two clocks of one host
_ANY_CLOCK = 3.6e9  # the same for clocks of two hosts
Event = dict[str, Any]


class TimelineError(ValueError):
    """There is nothing to merge, or the files do not belong together; the message has the
    reason."""


@dataclass
class _Part:
    """The file of one rank."""

    path: Path
    start: float = 0.0  # start by its clock, in microseconds; `epoch` is the same time since 1970
    epoch: int = 0
    end: float = 0.0  # end of its last event by its clock; 0 without events
    named: Event = field(default_factory=dict)
    clocks: list[tuple[float, float]] = field(
        default_factory=list
    )  # (time, rank 0's clock - this one)
    far: float = 0.0  # rank 0's clock minus this one if they were never compared

    def events(self) -> Iterator[Event]:
        """Yields all events except those about the file. An incomplete last line is skipped."""
        for event in _read(self.path):
            if event.get("name") not in ("process_name", "start", "clock"):
                yield event

    def ahead(self, at: float) -> float:
        """Returns rank 0's clock minus this one, interpolated between comparisons, in
        microseconds."""
        if not self.clocks:
            return self.far
        i = bisect.bisect(self.clocks, at, key=lambda clock: clock[0])
        if i in (0, len(self.clocks)):
            return self.clocks[max(0, i - 1)][1]
        (t0, a0), (t1, a1) = self.clocks[i - 1 : i + 1]
        return a0 + (a1 - a0) * (at - t0) / (t1 - t0)


# Yields the events of a file and skips lines that are not JSON objects.
def _read(path: Path) -> Iterator[Event]:
    with path.open(errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line.rstrip(",\n"))
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


# Reads the metadata of a file; returns None if it is not the file of a rank.
def _part(path: Path) -> _Part | None:
    out = _Part(path)
    try:
        for event in _read(path):
            name, args = event.get("name"), event.get("args", {})
            if name == "process_name":
                out.named = {**event, "pid": int(event["pid"]), "args": {**args}}
            elif name == "start":
                out.start = float(event["ts"])
                out.epoch = int(args["start_time_since_epoch_in_micros"])
            elif name == "clock":
                out.clocks.append((float(event["ts"]), float(args["offset_us"])))
            elif "ts" in event:
                out.end = max(out.end, event["ts"] + event.get("dur", 0))
    except (AttributeError, KeyError, TypeError, ValueError):  # another program's trace
        return None
    return out if out.named and out.epoch else None


def part_of(path: Path, rank: int) -> Path:
    """Returns the file that `rank` writes for the timeline `path`."""
    return path.with_name(f"{path.name}.rank-{rank}")


def parts_of(path: Path) -> list[Path]:
    """Returns the files of all ranks for the timeline `path`, or the files in the folder `path`.

    Raises:
        TimelineError: there are none.
    """
    if path.is_dir():
        out = sorted(path.glob("*.json")) + sorted(path.glob("*.rank-*"))
    else:
        out = [Path(name) for name in sorted(glob.glob(f"{glob.escape(str(path))}.rank-*"))]
    if not out:
        what = f"{path}/*.json" if path.is_dir() else f"{path}.rank-*"
        raise TimelineError(f"no rank has recorded anything there: {what}")
    return out


def _check_one_job(parts: Sequence[_Part]) -> None:
    """Checks that the files belong to different ranks that ran at the same time, as in one job.

    Raises:
        TimelineError: two files belong to two jobs; the message names both.
    """
    first = parts[0]

    def zero(part: _Part) -> float:  # zero of its clock, in microseconds since 1970
        if part.clocks:
            return first.epoch - first.start + part.ahead(part.start)
        return part.epoch - part.start

    for one, other in itertools.pairwise(parts):
        if one.named["pid"] == other.named["pid"]:
            _refuse(one, other, f"both are of rank {one.named['pid']}")
    last: _Part | None = None
    for part in sorted((part for part in parts if part.end), key=lambda p: p.start + zero(p)):
        if last is not None:
            idle = part.start + zero(part) - last.end - zero(last)
            one_clock = part.clocks or abs(zero(part) - zero(last)) <= _SAME_CLOCK
            if idle > (_SAME_CLOCK if one_clock else _ANY_CLOCK):
                why = f"the second begins {idle / 1e6:.0f} s after the end of the first"
                _refuse(last, part, why)
        if last is None or part.end + zero(part) > last.end + zero(last):
            last = part


def _refuse(one: _Part, other: _Part, why: str) -> None:
    raise TimelineError(
        f"{one.path} and {other.path} are not of one job: {why}; "
        "give each job's files a folder of their own"
    )


def merge(parts: Sequence[Path], out: Path, bar: bool = False) -> int:
    """Writes one timeline by the clock of the lowest rank, with times in microseconds from its
    start.

    Args:
        parts: the files of ranks.
        out: the file to write; it is replaced atomically.
        bar: show progress on a terminal.

    Returns:
        The number of ranks.

    Raises:
        TimelineError: no file is the record of a rank, or two files belong to two jobs.
    """
    found = [part for part in map(_part, parts) if part is not None]
    if not found:
        raise TimelineError(f"no record of a rank: {', '.join(map(str, parts))}")
    found.sort(key=lambda part: int(part.named["pid"]))
    _check_one_job(found)
    first, progress = found[0], Bar(bar)
    compared = any(part.clocks for part in found)
    # Its start is time 0 of the timeline, by rank 0's clock if clocks were compared.
    zero = first.start + first.ahead(first.start)
    with replacing(out) as file:
        file.write('{"traceEvents": [\n')  # vizviewer does not read a bare array
        for number, part in enumerate(found):
            progress.show("merging", number / len(found), part.path.name)
            # Ranks of one host share a clock. For others without comparisons, the wall clocks give
            # the difference.
            far = (part.epoch - part.start) - (first.epoch - first.start)
            part.far = far if abs(far) > _SAME_CLOCK and not compared else 0.0
            _write(file, part, zero, first.epoch)
        # JSON allows no comma after the last event.
        file.write(json.dumps({"ph": "M", "pid": first.named["pid"], "name": "end"}) + "\n]}\n")
    progress.clear()
    return len(found)


# Appends the events of one rank with times on the common clock.
def _write(file: Any, part: _Part, zero: float, epoch: int) -> None:
    args = {**part.named["args"], "start_time_since_epoch_in_micros": epoch}
    file.write(json.dumps({**part.named, "args": args}) + ",\n")
    sort = {"ph": "M", "pid": part.named["pid"], "name": "process_sort_index"}
    file.write(json.dumps({**sort, "args": {"sort_index": part.named["pid"]}}) + ",\n")
    for event in part.events():
        if "ts" in event:
            event["ts"] = round(event["ts"] + part.ahead(event["ts"]) - zero, 3)
        file.write(json.dumps(event) + ",\n")


# Adds the options of the command to its parser.
def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="merge")
    one = commands.add_parser(
        "merge",
        help="one timeline of what each rank has recorded",
        description="Ranks write FILE.rank-0, FILE.rank-1, ...; stop_timeline() makes FILE of "
        "them. Where a rank was killed before that, this does. Of hosts that share no disk, bring "
        "their files together first. A folder: of torch_ringdist.trace().",
    )
    one.add_argument("path", type=Path, metavar="FILE|FOLDER")
    one.add_argument("-o", "--out", type=Path, help="default: FILE, or FOLDER.json")


# Merges the given files and prints the name of the result. Raises TimelineError, or ValueError if
# the result cannot be written.
def run(args: argparse.Namespace) -> None:
    path: Path = args.path
    # resolve() gives a name to "." and "/".
    out = args.out or (Path(f"{path.resolve()}.json") if path.is_dir() else path)
    parts = parts_of(path)
    check_writable(out, "--out" if args.out else "the result (--out names another file)")
    ranks = merge(parts, out, bar=True)
    print(f"{out}: {counted(ranks, 'rank')}; open it in ui.perfetto.dev, or chrome://tracing")
