r"""Time operations between hosts on one machine: network namespaces with links of a given rate.

    python -m benchmarks.net                               every operation, 2 and 4 hosts of one
                                                           rank, 2 of two; 100 Mb/s, 1 and 10 Gb/s;
                                                           an hour; continues a stopped run
    python -m benchmarks.net --quick                       a short test, a minute
    python -m benchmarks.net --layouts 4x1 1+2+3 --rate 1gbit --sizes 16M \
                             --operations all_reduce --variants gloo ringdist ringdist/ring
    python -m benchmarks.net allreduce --rate 1gbit --variants gloo ringdist ringdist:int4
                                                           one operation in depth: codecs, their
                                                           losses, every byte that was sent
    python -m benchmarks.net --hosts 4 --rate 1gbit -- train.py --epochs 3
                                                           torchrun of any script on those hosts
    python -m benchmarks.ddp steps                         steps of a training between hosts

A layout is hosts x ranks per host, or the ranks of every host joined by +. A variant is
backend[@transport][/algorithm][:codec][+cast]:

    gloo, openmpi          other backends; OpenMPI through mpi4py, for operations only
    gloo+fp16              cast to fp16 before and back after, outside of it; allreduce only
    ringdist               uncompressed, the reference for speed-ups of allreduce
    ringdist@tcp           over that transport, also inside a host
    ringdist/direct        with that algorithm (`python -m torch_ringdist info` lists them)
    ringdist:int4          compressed inside the collective, residuals on where the loss needs them;
    ringdist:onebit>int4   contributions with one codec, sums with another

It needs root, and iproute2 (ip and tc). Without them it prints the reason and ends with status 0.
The network of the machine itself is not changed. Everything is removed at the end, also after
Ctrl-C. The hosts share this machine's cores. With a fast link, the cores are the limit instead of
the link, which is visible in the speed of plain sockets. docs/how-to/measure.md explains the
columns.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from benchmarks.host.operations import OPERATIONS
from benchmarks.net import hosts as net
from benchmarks.net.launch import torchrun
from benchmarks.net.layout import Layout
from benchmarks.net.sweep import CONGESTION, RunError, parse_layout, parse_rate, sweep
from benchmarks.net.variants import OPENMPI, TCP, Variant
from benchmarks.report import parse_size

OPERATIONS_MODE, ALLREDUCE, SCRIPT = "operations", "allreduce", "script"
CODECS = ("fp16", "bf16", "int8", "int4", "int2", "onebit", "topk:0.01")
VARIANTS = {
    OPERATIONS_MODE: ["ringdist", "gloo", "openmpi", "ringdist:int4"],
    ALLREDUCE: ["gloo", "gloo+fp16", "ringdist", *(f"ringdist:{codec}" for codec in CODECS)],
}
RATES = {
    OPERATIONS_MODE: ["100mbit", "1gbit", "10gbit"],
    ALLREDUCE: ["100mbit", "1gbit"],
    SCRIPT: ["1gbit"],
}
LAYOUTS = ("2x1", "4x1", "2x2")
WHOLE = {"layouts": [Layout.parse(text) for text in LAYOUTS], "seconds": 1.0, "rounds": 3}
QUICK = {
    **{"rate": ["1gbit"], "layouts": [Layout.parse("2x2")], "sizes": [8, 1 << 20]},
    **{"seconds": 0.3, "rounds": 2},
}


def variant(text: str) -> str:
    try:
        return Variant.parse(text).text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def new_parser(mode: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of all modes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.net",
        usage=f"%(prog)s [{ALLREDUCE}] [options] | [options] -- script.py arguments ...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rate", type=parse_rate, nargs="+", help=f"default: {' '.join(RATES[mode])}")
    add(
        "--congestion",
        default=CONGESTION,
        metavar="NAME",
        help="of TCP: cubic (default), bbr, reno",
    )
    add("--out", type=Path, default=Path("build/bench-net"), metavar="FOLDER")
    few = range(2, net.MAX_HOSTS + 1)
    layouts = "in place of --layouts" if mode == OPERATIONS_MODE else "default: 4"
    add("--hosts", type=int, nargs="+", choices=few, metavar="N", help=layouts)
    add("--nproc-per-host", type=int, default=1, metavar="N", help="ranks, with --hosts")
    if mode != SCRIPT:
        default = " ".join(VARIANTS[mode])
        add("--variants", type=variant, nargs="+", metavar="V", help=f"default: {default}")
    return parser


def add_operations(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--operations", nargs="+", choices=OPERATIONS, metavar="NAME", help="default: all")
    default = f"default: {' '.join(LAYOUTS)}"
    add("--layouts", type=parse_layout, nargs="+", metavar="HxR|R+R", help=default)
    sizes = "of the longest tensor; default: 8 64K 1M 16M 64M, below 1 Gb/s 8 64K 1M 4M"
    add("--sizes", type=parse_size, nargs="+", metavar="BYTES", help=sizes)
    seconds = "of calls, of each operation, variant and size, 300 a round at most (default: 1)"
    add("--seconds", type=float, help=seconds)
    add("--rounds", type=int, help="that these are spread over (default: 3)")
    add("--fresh", action="store_true", help="measure again what is there")
    quick = "2x2, 1gbit, two sizes, but for what is given; its results are in a folder of their own"
    add("--quick", action="store_true", help=quick)


def add_allreduce(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sizes", nargs="+", default=["16M"], metavar="BYTES", help="default: 16M")
    add("--dtype", choices=("fp32", "fp16", "bf16"), default="fp32")
    add("--data", type=Path, metavar="FILE.pt", help="reduce this, not random numbers")
    add("--seconds", type=float, default=10.0, help="per variant (default: 10)")
    add("--rounds", type=int, default=5, help="that these are spread over (default: 5)")


def parse_arguments(words: list[str]) -> argparse.Namespace:
    own, command = words, []
    if "--" in words:
        cut = words.index("--")
        own, command = words[:cut], words[cut + 1 :]
    mode = SCRIPT if command else OPERATIONS_MODE
    if own[:1] in ([OPERATIONS_MODE], [ALLREDUCE]) and not command:
        mode, own = own[0], own[1:]
    parser = new_parser(mode)
    if mode == OPERATIONS_MODE:
        add_operations(parser)
    elif mode == ALLREDUCE:
        add_allreduce(parser)
    args = parser.parse_args(own)
    args.mode, args.command = mode, command
    complete(args, parser)
    return args


def complete(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fills in defaults that depend on the mode, and rejects options that exclude each other."""
    if args.nproc_per_host < 1:
        parser.error("--nproc-per-host: expected more than 0")
    if args.mode == OPERATIONS_MODE:
        if args.layouts and args.hosts:
            parser.error("--hosts: --layouts say how many hosts there are")
        if not args.hosts and args.nproc_per_host > 1:
            parser.error("--nproc-per-host: is for --hosts; --layouts 2x2 has two ranks a host")
        if args.hosts:
            args.layouts = layouts_of(args, parser)
        for name, value in (QUICK if args.quick else WHOLE).items():
            if getattr(args, name) is None:
                setattr(args, name, value)
        if args.quick:
            args.out /= "quick"
    if args.mode != SCRIPT and (args.rounds < 1 or not 0 < args.seconds < math.inf):
        parser.error("--rounds and --seconds: expected more than 0")
    args.rate = args.rate or RATES[args.mode]
    args.hosts = args.hosts or [4]
    if args.mode == SCRIPT:
        if len(args.hosts) * len(args.rate) > 1:
            parser.error("a script runs on one number of hosts and one rate")
        return
    args.variants = args.variants or VARIANTS[args.mode]
    for text in args.variants:
        backend, cast = Variant.parse(text).backend, Variant.parse(text).cast
        if args.mode == OPERATIONS_MODE and (cast or backend == TCP):
            parser.error(f"--variants: {text}: operations have no casts, and {TCP} is always there")
        if args.mode == ALLREDUCE and backend == OPENMPI:
            parser.error(f"--variants: {text}: {ALLREDUCE} is timed without OpenMPI")


def layouts_of(args: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Layout]:
    try:
        return [Layout.parse(f"{count}x{args.nproc_per_host}") for count in args.hosts]
    except ValueError as error:
        parser.error(f"--hosts, --nproc-per-host: {error}")


def allreduce_words(args: argparse.Namespace, of_rate: str, json: Path) -> list[str]:
    """Returns the command of the allreduce benchmark for torchrun."""
    # The bound is always included, and each variant runs once.
    variants = list(dict.fromkeys([TCP, *args.variants]))
    return [
        *("-m", "benchmarks.net.allreduce"),
        *("--dtype", args.dtype),
        *(("--data", str(args.data)) if args.data else ()),
        *("--seconds", str(args.seconds)),
        *("--interface", net.INTERFACE),
        *("--variants", *variants),
        *("--sizes", *args.sizes),
        *("--rounds", str(args.rounds)),
        *("--links", f"{of_rate} {args.congestion}"),
        *("--per-host", str(args.nproc_per_host)),
        *("--json", str(json)),
    ]


def run(args: argparse.Namespace, count: int, of_rate: str) -> int:
    """Runs a script, or the allreduce benchmark, on that number of hosts."""
    name = f"{count}hosts-{of_rate}"
    json = args.out / f"allreduce-{name}.json"
    command = args.command or allreduce_words(args, of_rate, json)
    with net.Hosts(count, of_rate, args.congestion) as hosts:
        status = torchrun(hosts, command, args.out / f"logs-{name}", args.nproc_per_host)
    if status == 0 and not args.command:
        from benchmarks.net.plot import draw  # matplotlib takes a second to load

        print(f"\nwritten: {json}, {', '.join(map(str, draw(json)))}\n")
    return status


def main() -> int:
    args = parse_arguments(sys.argv[1:])
    if reason := net.why_not():
        print(f"skipped: {reason}")
        return 0
    net.unwind_on_signals()
    try:
        if args.mode == OPERATIONS_MODE:
            sweep(args)
            return 0
        for count in args.hosts:
            for of_rate in args.rate:
                if status := run(args, count, of_rate):
                    return status
    except KeyboardInterrupt:
        print("interrupted; the hosts are removed, what was finished is kept", file=sys.stderr)
        return 130
    except net.CommandError as error:
        print(f"the hosts could not be made: {error}", file=sys.stderr)
        return 1
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
