"""``python -m torch_ringdist plan``: prints the plan of an operation, its alternatives and their
predicted times."""

from __future__ import annotations

import argparse
import itertools
import json
import os
from dataclasses import dataclass
from typing import Any

import torch

from torch_ringdist import _native, _plan_device, _plan_plot, _plan_text, _units
from torch_ringdist._costs import Costs
from torch_ringdist._progress_bar import Bar

MOST_RANKS = 4096
# Limit for each algorithm. Above it, several segments are simulated as one message. A simulation of
# this size takes one or two seconds.
_MOST_MESSAGES = 500_000
_MOST_BYTES = 1 << 40
_SEGMENT_BYTES = 252 << 10
_SHOWN = 16  # highest number of ranks for which messages are listed

_DESCRIPTION = """\
What torch_ringdist would do with an operation: the algorithm that it chooses and why, the others
with predicted times and bytes, and who sends what to whom. It asks no other rank and starts no
group; of the RINGDIST_* variables it reads RINGDIST_COSTS alone.

The choice goes by a formula for each algorithm; beside it is what a walk of its schedule over a
simulated network takes. Both count what messages cost; the formula also what adding takes."""

_EXAMPLES = """\
examples:
  python -m torch_ringdist plan --ranks 8 --hosts 2 --operation all_reduce --bytes 1M
  python -m torch_ringdist plan --ranks 4 --operation broadcast --bytes 64K --root 2
  python -m torch_ringdist plan --layout 1,2,3 --bytes 16M --rate 1gbit --latency 50us
      Three hosts of one, two and three ranks: 0 | 1 2 | 3 4 5.
  python -m torch_ringdist plan --ranks 8 --hosts 4 --bytes 4M --codec int4
  python -m torch_ringdist plan --ranks 8 --hosts 2 --algorithm ring --save ring.png
      What if it were forced; drawn, too.
  python -m torch_ringdist plan --ranks 8 --hosts 2 --device cuda --gpus 2
      CUDA tensors of four ranks to two GPUs: by NCCL or by way of the host, and why.
  python -m torch_ringdist plan --scale --save scale.png
      Predicted times of an all_reduce of 100MB over 2, 4, ..., 4096 ranks, 8 to a host.
"""


@dataclass(frozen=True)
class Question:
    """An operation over ranks on hosts, to be planned."""

    operation: str
    bytes: int
    dtype: str
    reduce_op: str
    root: int
    hosts: list[list[int]]
    algorithm: str
    codec: str
    layout_deterministic: bool
    costs: Costs
    costs_from: str

    @property
    def ranks(self) -> int:
        return sum(map(len, self.hosts))

    @property
    def element_bytes(self) -> int:
        return getattr(torch, self.dtype).itemsize

    def ask(self, shown: int) -> dict[str, Any]:
        """Returns the result of the native forecast().

        Args:
            shown: messages are listed for at most this many ranks. If negative, rounds are left
                out.

        Raises:
            ValueError: a group would refuse this operation.
        """
        native = _native.load()
        try:
            return native.forecast(
                operation=self.operation,
                count=self.bytes // self.element_bytes,
                dtype=self.dtype,
                reduce_op=self.reduce_op,
                root=self.root,
                hosts=self.hosts,
                algorithm=self.algorithm,
                codec=self.codec,
                layout_deterministic=self.layout_deterministic,
                segment_bytes=_SEGMENT_BYTES,
                costs=self.costs.numbers(),
                most_messages=_MOST_MESSAGES,
                shown=shown,
            )
        except TypeError as error:  # raised for unsupported arguments
            raise ValueError(str(error)) from None


# Names as in torch; the first one is the default.
OPERATIONS = (
    *("all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter"),
    *("all_to_all", "barrier"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    add = parser.add_argument
    add("--ranks", type=int, metavar="N", help=f"of the group, 1 to {MOST_RANKS}")
    add("--hosts", type=int, metavar="H", help="that share them evenly, in runs (default: 1)")
    add("--layout", metavar="N,N,...", help="ranks of each host, where they differ: 1,2,3")
    add("--operation", default="all_reduce", metavar="OP", help=f"{', '.join(OPERATIONS)}")
    add(
        "--bytes",
        metavar="B",
        help="of the tensor (all_reduce, broadcast, reduce), else of one rank's part; 1M and 1MiB "
        "are of 1024, 1MB is of 1000 (default: 1M)",
    )
    add("--dtype", default="float32", help="default: float32")
    add("--reduce-op", default="SUM", metavar="OP", help="SUM, AVG, MAX, ... (default: SUM)")
    add(
        "--root",
        type=int,
        default=0,
        metavar="RANK",
        help="of a broadcast, reduce, gather, scatter",
    )
    add("--codec", default="", help="as int4 or topk:0.01>int4; `info` lists them (default: none)")
    add("--algorithm", default="", help="as if forced by RINGDIST_ALGORITHM; `info` lists them")
    add(
        "--deterministic",
        choices=("run", "layout"),
        default="run",
        help="as RINGDIST_DETERMINISTIC (default: run)",
    )
    add("--rate", metavar="R", help="of the line of a host: 100mbit, 1gbit (built in: 10gbit)")
    add("--latency", metavar="T", help="between hosts: 50us, 1ms (built in: 30us)")
    add(
        "--costs", metavar="FILE", help="that `tune` wrote (default: RINGDIST_COSTS, else built in)"
    )
    add("--scale", action="store_true", help="times over 2, 4, 8, ... ranks; up to --ranks")
    add("--per-host", type=int, metavar="N", help="ranks of a host of --scale (default: 8)")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--save", metavar="FILE", help="draw it, as .png, .pdf or .svg; needs matplotlib")
    _plan_device.add_arguments(parser)
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> None:
    """Prints the plan that the arguments request.

    Raises:
        ValueError: an option that is not accepted, an impossible layout, or an operation that a
            group would refuse.
        ImportError: matplotlib is missing and --save needs it, or the library for CUDA is missing.
    """
    _plan_device.check(args)
    if args.save:
        _plan_plot.check(args.save)
    if args.scale:
        _run_scale(args)
        return
    if args.per_host is not None:
        raise ValueError("--per-host: only --scale takes it; else give --ranks and --hosts")
    question = question_of(args, hosts_of(args.ranks, args.hosts, args.layout), "1M")
    answer = question.ask(_SHOWN)
    route = _plan_device.route(question, answer["algorithm"], args)
    if args.json:
        print(json.dumps(_as_json(question, answer, route), indent=2))
    else:
        print(_plan_text.as_text(question, answer, route))
    if args.save:
        _plan_plot.draw(question, answer, args.save)


def hosts_of(ranks: int | None, hosts: int | None, layout: str | None) -> list[list[int]]:
    """Returns the ranks of each host; consecutive ranks share a host.

    Raises:
        ValueError: the layout is impossible. The message names the reason and what is accepted.
    """
    if layout is not None:
        counts = [_count_of(text, layout) for text in layout.split(",")]
        total = sum(counts)
        if ranks is not None and total != ranks:
            raise ValueError(
                f"--layout {layout}: its hosts have {_units.counted(total, 'rank')}, "
                f"but --ranks is {ranks}"
            )
        if hosts is not None and len(counts) != hosts:
            raise ValueError(
                f"--layout {layout}: it has {_units.counted(len(counts), 'host')}, "
                f"but --hosts is {hosts}"
            )
    elif ranks is None:
        raise ValueError("--ranks: how many are there? 1 to 4096, or give --layout")
    else:
        total = ranks
        counts = []
    if not 1 <= total <= MOST_RANKS:
        argument = "--ranks" if layout is None else f"--layout {layout}"
        raise ValueError(f"{argument}: expected 1 to {MOST_RANKS} ranks, got {total}")
    if not counts:
        counts = _shared_out(total, 1 if hosts is None else hosts)
    ends = itertools.accumulate(counts)
    return [list(range(end - count, end)) for count, end in zip(counts, ends, strict=True)]


# Returns the number of ranks of each host if they are distributed evenly; else raises ValueError.
def _shared_out(ranks: int, hosts: int) -> list[int]:
    if hosts < 1:
        raise ValueError(f"--hosts: expected at least 1, got {hosts}")
    if hosts > ranks:
        for_ranks = _units.counted(ranks, "rank")
        raise ValueError(f"--hosts: {hosts} hosts for {for_ranks}; each needs one at least")
    if ranks % hosts:
        less, more = ranks // hosts, ranks % hosts
        example = [str(less + 1)] * more + [str(less)] * (hosts - more)
        shown = ",".join(example) if hosts <= 16 else "N,N,..."
        raise ValueError(
            f"--hosts: {ranks} ranks cannot be shared out evenly over {hosts} hosts; "
            f"say how many each has, as --layout {shown}"
        )
    return [ranks // hosts] * hosts


# Parses one number of a layout.
def _count_of(text: str, layout: str) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text[:9]) <= MOST_RANKS:
        raise ValueError(
            f"--layout {layout}: expected the number of ranks of each host, as 1,2,3, each at "
            f"least 1 and all together at most {MOST_RANKS}; got {text!r}"
        )
    return int(text)


def question_of(args: argparse.Namespace, hosts: list[list[int]], default_bytes: str) -> Question:
    """Returns the checked arguments. Raises ValueError that names a wrong one."""
    ranks = sum(map(len, hosts))
    dtype = getattr(torch, args.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(
            f"--dtype: expected one of torch's, as float32 or bfloat16: {args.dtype!r}"
        )
    count = _units.parse_bytes("--bytes", args.bytes or default_bytes)
    most = min(_MOST_BYTES, (1 << 62) // ranks**2)
    if count > most:
        raise ValueError(
            f"--bytes: expected at most {_units.format_bytes(most)} for {ranks} ranks, "
            f"got {args.bytes}"
        )
    if count % dtype.itemsize:
        raise ValueError(
            f"--bytes: {count} is no multiple of {dtype.itemsize}, the bytes of a {args.dtype}"
        )
    if not 0 <= args.root < ranks:
        raise ValueError(f"--root: expected a rank from 0 to {ranks - 1}, got {args.root}")
    costs, costs_from = costs_for(args)
    return Question(
        operation=_operation(args.operation),
        bytes=count,
        dtype=args.dtype,
        reduce_op=args.reduce_op.upper(),
        root=args.root,
        hosts=hosts,
        algorithm=args.algorithm,
        codec=args.codec,
        layout_deterministic=args.deterministic == "layout",
        costs=costs,
        costs_from=costs_from,
    )


def _operation(given: str) -> str:
    """Returns torch's name of the operation. Names without underscores are accepted, as in MPI and
    NCCL."""
    for name in OPERATIONS:
        if given.lower().replace("_", "") == name.replace("_", ""):
            return name
    raise ValueError(f"--operation: expected one of {', '.join(OPERATIONS)}, got {given!r}")


def costs_for(args: argparse.Namespace) -> tuple[Costs, str]:
    """Returns the costs to plan with, and a description of their source."""
    given = args.rate is not None or args.latency is not None
    if args.costs and given:
        raise ValueError(
            "--costs: its file says rate and latency; give it, or --rate and --latency"
        )
    path = args.costs or ("" if given else os.environ.get("RINGDIST_COSTS", ""))
    if path:
        return Costs.in_force(path)
    rate = None if args.rate is None else _units.parse_rate("--rate", args.rate)
    latency = None if args.latency is None else _units.parse_time("--latency", args.latency)
    return Costs.built_in(rate, latency), _built_in(rate, latency)


def _built_in(rate: float | None, latency_ns: int | None) -> str:
    native = _native.load()
    rate = native.USUAL_RATE if rate is None else rate
    latency_ns = native.USUAL_LATENCY_NS if latency_ns is None else latency_ns
    return (
        f"built in, for {_units.format_rate(rate)} and "
        f"{_units.format_seconds(latency_ns / 1e9)} between hosts"
    )


# Prints the predicted times over 2, 4, 8, ... ranks (--scale).
def _run_scale(args: argparse.Namespace) -> None:
    if args.hosts is not None or args.layout is not None:
        raise ValueError(
            "--scale: its hosts have --per-host ranks each; --hosts, --layout say else"
        )
    most = MOST_RANKS if args.ranks is None else args.ranks
    per_host = 8 if args.per_host is None else args.per_host
    if not 2 <= most <= MOST_RANKS:
        raise ValueError(f"--ranks: --scale needs 2 to {MOST_RANKS}, got {most}")
    if not 1 <= per_host <= MOST_RANKS:
        raise ValueError(f"--per-host: expected 1 to {MOST_RANKS}, got {per_host}")
    sizes = [2**power for power in range(1, most.bit_length()) if 2**power <= most]
    rows = []
    bar = Bar()
    for number, size in enumerate(sizes):
        bar.show("plan", number / len(sizes), f"{size} of {sizes[-1]} ranks")
        counts = [per_host] * (size // per_host) + [size % per_host] * (size % per_host > 0)
        layout = ",".join(map(str, counts))
        question = question_of(args, hosts_of(None, None, layout), "100MB")
        rows.append((size, question.ask(-1)))
    bar.clear()
    if args.json:
        print(json.dumps([{"ranks": size, **answer} for size, answer in rows], indent=2))
    else:
        print(_plan_text.scale_as_text(question, per_host, rows))
    if args.save:
        _plan_plot.draw_scale(question, per_host, rows, args.save)


# Returns the result as one JSON object.
def _as_json(
    question: Question, answer: dict[str, Any], route: dict[str, Any] | None
) -> dict[str, Any]:
    asked = {
        "operation": question.operation,
        "bytes": question.bytes,
        "dtype": question.dtype,
        "reduce_op": question.reduce_op,
        "root": question.root,
        "hosts": question.hosts,
        "codec": question.codec,
        "costs": question.costs.numbers(),
        "costs_from": question.costs_from,
    }
    return {"asked": asked, "device": route, **answer}
