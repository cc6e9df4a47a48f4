"""``ringdist bench``: times an operation of a backend at several sizes, and checks its results."""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import statistics
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from torch_ringdist import _inspect, _native, _registration, _units
from torch_ringdist._bench_case import DTYPES, OPERATIONS, REDUCE_OPS
from torch_ringdist._bench_rank import agreed, counts, measure
from torch_ringdist._credentials import has_key
from torch_ringdist._errors import CommandError
from torch_ringdist._generation import open_client
from torch_ringdist._progress_bar import Bar
from torch_ringdist._served_store import serve_for_job

_LIMIT = timedelta(seconds=60)  # for a call, and for ranks to meet
_FOR_CODECS = {  # accepted values of other options; None is a default
    "backend": ("ringdist",),
    "dtype": ("float32", "float16", "bfloat16"),
    "reduce_op": (None, "sum"),
}

_DESCRIPTION = """\
Time an operation of torch.distributed at several sizes, and check its results. The columns are
those of nccl-tests: `size` is the larger one of a rank's input and output, `count` its elements, or
those of a part where each rank has one. `algbw` is size / time; `busbw` compares with the speed of
the hardware, whatever the number of ranks. `#wrong` counts the elements of all ranks that differ
from the exact result; the status is then 1. With a codec, `error` is |result - exact| / |exact|.

The time of an iteration is that of the slowest rank; `time` is the mean, p50 and p99 percentiles.
Ranks are those of a launcher (torchrun, ringdist run --world-size, srun, mpirun). Without one, this
command starts --nproc-per-node ranks on this host."""

_EXAMPLES = """\
examples:
  ringdist bench
  ringdist bench --backend gloo
      All-reduce between two ranks of this host, 8 B to 64 MiB; the same by gloo.

  ringdist bench all_gather --nproc-per-node 4 --min-bytes 1M --max-bytes 1M --iterations 1000
      One size. --seconds 10 gives it ten seconds instead of one.

  ringdist bench --codec int4 --min-bytes 1M
      Compressed; `ringdist codecs` lists the codecs.

  torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
           -m torch_ringdist bench --json > bench.json
  MASTER_ADDR=HOST srun --ntasks 8 ringdist bench
      On several hosts. Rank 0 prints."""

_COLUMNS = {  # key of a row: title, unit and width
    "size_bytes": ("size", "(B)", 12),
    "count": ("count", "(elements)", 12),
    "dtype": ("type", "", 9),
    "reduce_op": ("redop", "", 6),
    "root": ("root", "", 5),
    "time_us": ("time", "(us)", 10),
    "p50_us": ("p50", "(us)", 10),
    "p99_us": ("p99", "(us)", 10),
    "algbw_gb_per_s": ("algbw", "(GB/s)", 8),
    "busbw_gb_per_s": ("busbw", "(GB/s)", 8),
    "wrong": ("#wrong", "", 8),  # without a codec
    "relative_error": ("error", "", 8),  # with one
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    add, names = parser.add_argument, f"{', '.join(OPERATIONS)} (default: all_reduce)"
    one: dict[str, Any] = {"nargs": "?", "default": "all_reduce", "metavar": "OPERATION"}
    add("operation", **one, choices=tuple(OPERATIONS), help=names)
    add("--backend", default="ringdist", choices=("ringdist", "gloo", "nccl"))
    add("--device", choices=("cpu", "cuda"), help="default: cuda with nccl, else cpu")
    add("--nproc-per-node", type=int, metavar="N", help="ranks, without a launcher (default: 2)")
    add("--min-bytes", default="8", metavar="B", help="64K is of 1024, 100KB of 1000 (default: 8)")
    add("--max-bytes", default="64M", metavar="B", help="default: 64M")
    add("--factor", type=int, default=2, metavar="N", help="from size to size (default: 2)")
    add("--dtype", default="float32", choices=DTYPES, help="default: float32")
    add("--reduce-op", choices=tuple(REDUCE_OPS), help="default: sum")
    add("--root", type=int, metavar="RANK", help="default: 0")
    add("--codec", default="", help="of all_reduce, all_gather, reduce_scatter, as topk:0.01")
    add("--iterations", type=int, default=100, metavar="N", help="timed, per size (default: 100)")
    add("--warmup", type=int, default=5, metavar="N", help="calls before that (default: 5)")
    add(
        "--seconds",
        type=float,
        default=1,
        metavar="S",
        help="limit of the timed calls of a size (default: 1)",
    )
    add("--json", action="store_true", help="print JSON instead of a table")
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> int:
    """Measures as a rank of a launcher, or starts ranks that do. Returns the exit status.

    Raises:
        ValueError: an option that is not accepted. It is raised before a group is created.
        CommandError: a rank has failed, or results are wrong.
    """
    # It takes long to import, and importing this module gives the options of the command.
    from torch_ringdist.horovod._launch_info import is_elastic, launched

    try:
        me = launched()
    except ValueError as error:
        raise ValueError(str(error).replace("horovod.init()", "bench")) from None
    if is_elastic():
        raise ValueError("the number of ranks may change here; use ringdist run --world-size")
    has_launcher = me.port != 0
    if has_launcher and args.nproc_per_node:
        raise ValueError(f"--nproc-per-node: a launcher has started {me.size} ranks; leave it out")
    ranks = me.size if has_launcher else args.nproc_per_node or 2
    _check(args, ranks)
    if has_launcher:
        address = {"MASTER_ADDR": me.address, "MASTER_PORT": str(me.port)}
        os.environ.update(address, RANK=str(me.rank), WORLD_SIZE=str(me.size))
        return _as_rank(args, me.rank, ranks, me.local_rank or 0, None)
    store = serve_for_job("127.0.0.1", 0)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it ends the others
    try:
        torch.multiprocessing.spawn(_local, (args, ranks, store.port), ranks, daemon=True)
    except torch.multiprocessing.ProcessExitedException as error:
        if error.signal_name:
            raise CommandError(f"rank {error.error_index}: {error}") from None
        return 1  # the rank has printed the reason
    return 0


def _check(args: argparse.Namespace, ranks: int) -> None:
    """Completes the options, and raises ValueError for those that `ranks` ranks cannot run."""
    args.min_bytes = _units.parse_bytes("--min-bytes", args.min_bytes)
    args.max_bytes = _units.parse_bytes("--max-bytes", args.max_bytes)
    args.device = args.device or ("cuda" if args.backend == "nccl" else "cpu")
    ranges = {
        "nproc_per_node": (1, 1024),
        "min_bytes": (1, 1 << 50),
        "max_bytes": (args.min_bytes, 1 << 50),
        "factor": (2, 1 << 20),
        "root": (0, ranks - 1),
        "iterations": (1, 1_000_000),
        "warmup": (0, 1_000_000),
        "seconds": (0.001, 3600),
    }
    for name, (least, most) in ranges.items():
        given, option = getattr(args, name), "--" + name.replace("_", "-")
        if given is not None and not least <= given <= most:  # also rejects NaN
            raise ValueError(f"{option}: expected {least} to {most}, got {given}")
    traits = OPERATIONS[args.operation][1].split()
    for name, trait in (("root", "rooted"), ("reduce_op", "reduces"), ("codec", "codec")):
        if getattr(args, name) not in (None, "") and trait not in traits:
            option, given = "--" + name.replace("_", "-"), getattr(args, name)
            raise ValueError(f"{option}: {args.operation} takes none, got {given!r}")
    if args.operation == "send_recv" and ranks < 2:
        raise ValueError("send_recv: expected 2 ranks or more, got 1")
    if not dist.is_backend_available(args.backend):
        raise ValueError(f"--backend: this torch was built without {args.backend}")
    if args.backend == "nccl" and args.device == "cpu":
        raise ValueError("--device: nccl expects cuda, got cpu")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device: torch finds no GPU here; expected cpu, got cuda")
    if args.codec:
        _native.load().check_codec("--codec", args.codec, ranks, None)
        for name, accepted in _FOR_CODECS.items():
            if (given := getattr(args, name)) not in accepted:
                option, words = "--" + name.replace("_", "-"), ", ".join(filter(None, accepted))
                raise ValueError(f"{option}: with --codec, expected {words}, got {given}")


def _local(rank: int, args: argparse.Namespace, ranks: int, port: int) -> None:
    """Runs one of the processes that run() starts. Its exit status is that of the command."""
    _registration.register()
    torch.set_num_threads(1)  # else ranks compete for cores
    try:
        store = open_client("127.0.0.1", port, has_key(), _LIMIT)
        sys.exit(_as_rank(args, rank, ranks, rank, store))
    except (CommandError, RuntimeError, ValueError) as error:
        print(f"torch_ringdist bench: {error}", file=sys.stderr)
        sys.exit(1)


def _as_rank(
    args: argparse.Namespace, rank: int, ranks: int, local: int, store: dist.Store | None
) -> int:
    """Measures as one rank. Rank 0 prints. Without a store, the environment leads to it."""
    try:
        if args.device == "cuda":
            torch.cuda.set_device(local % torch.cuda.device_count())
        given: Any = {"rank": rank, "world_size": ranks, "store": store, "timeout": _LIMIT}
        dist.init_process_group(args.backend, **given)
    except RuntimeError as error:
        raise CommandError(f"rank {rank}: {error}") from error
    hosts = agreed(socket.gethostname)
    left_out = "wrong" if args.codec else "relative_error"
    columns = {key: column for key, column in _COLUMNS.items() if key != left_out}
    rows, shows, bar = list[dict[str, Any]](), rank == 0 and not args.json, Bar(rank == 0)
    document = _description(args, hosts)
    if shows:
        versions = ", ".join(f"{name} {one}" for name, one in document["versions"].items())
        print(f"# {args.operation}, {args.backend}, {args.device}, {versions}")
        for host, here in document["hosts"].items():
            print(f"# {host}: {_units.counted(len(here), 'rank')}")
        for part in (0, 1):
            print(
                "#" + _line([one[part] for one in columns.values()], columns)[1:].rstrip(),
                flush=True,
            )
    bar.show(args.operation, 0)
    try:
        for row in measure(args, hosts):
            rows.append(row)
            bar.clear()  # the line may be visible in the terminal, too
            if shows:
                print(_line([row[key] for key in columns], columns), flush=True)
            bar.show(args.operation, len(rows) / len(counts(args, ranks)))
    finally:
        bar.clear()
    dist.destroy_process_group()
    return _end(args, {**document, "rows": rows}) if rank == 0 else 0


def _end(args: argparse.Namespace, document: dict[str, Any]) -> int:
    """Prints the end of the output. Raises CommandError if results are wrong."""
    if args.json:
        print(json.dumps(document, indent=2))
    elif args.operation != "barrier":
        average = statistics.fmean(row["busbw_gb_per_s"] for row in document["rows"])
        print(f"# Avg bus bandwidth: {average:g} GB/s")
    if wrong := sum(row["wrong"] or 0 for row in document["rows"]):
        elements = _units.counted(wrong, "wrong element")
        raise CommandError(f"{args.operation} by {args.backend}: {elements} in the results")
    return 0


# Returns the values as a line of the table.
def _line(cells: Sequence[Any], columns: dict[str, tuple[str, str, int]]) -> str:
    out = []
    for cell, (key, (_, _, width)) in zip(cells, columns.items(), strict=True):
        if isinstance(cell, float):
            cell = f"{cell:.1e}" if key == "relative_error" else f"{cell:.2f}"
        out.append(f"{'-' if cell is None else cell:>{width}}")
    return " ".join(out)


def _description(args: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Returns the JSON document without the rows. `names` has the host of each rank."""
    versions = {"torch_ringdist": _inspect.version(), "torch": torch.__version__}
    hosts = {one: [i for i, name in enumerate(names) if name == one] for one in names}
    kept = ("operation", "backend", "device")
    options = {key: value for key, value in vars(args).items() if key not in (*kept, "command")}
    return {
        **{key: getattr(args, key) for key in kept},
        "world_size": len(names),
        "hosts": hosts,
        "versions": versions,
        "options": options,
    }
