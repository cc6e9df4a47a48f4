r"""Time allreduce between hosts, on one machine: network namespaces behind links of a given rate.

    python -m benchmarks.net                               4 hosts, 100 Mb/s and 1 Gb/s
    python -m benchmarks.net --hosts 2 4 --rate 1gbit --variants gloo ringdist ringdist:int4
    python -m benchmarks.net --sizes 1M 16M --seconds 3 --out /tmp/quick
    python -m benchmarks.net --operations all_reduce broadcast --hosts 2 --nproc-per-host 2 \
                             --sizes 64M --variants gloo ringdist ringdist/ring
                                                           other operations, as a share of the wire
    python -m benchmarks.net --hosts 4 --rate 1gbit -- train.py --epochs 3
                                                           torchrun of any script on those hosts

A variant is backend[/algorithm][:codec][+cast]:
    gloo, gloo+fp16        another backend; cast to fp16 before and back after, outside of it
    ringdist               uncompressed, what speed-ups are relative to
    ringdist/direct        with that algorithm (`python -m torch_ringdist info` lists them)
    ringdist:int4          compressed inside the collective, residuals on where the loss needs them;
    ringdist:onebit>int4   contributions with one codec, sums with another
    tcp                    the bound: plain sockets, each host to the next, as many bytes as an
                           uncompressed allreduce must send; always measured

Needs root, and iproute2 (ip and tc); without them it says so and ends with status 0. Nothing of the
machine's own network is touched. Everything is removed at the end, also after Ctrl-C. The hosts
share this machine's cores: with a fast link they and not the link are the limit, which shows as a
low share of the bound. docs/bench-net.md explains the columns.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.net import hosts as net
from benchmarks.net.launch import torchrun
from benchmarks.net.operations import SIZED
from benchmarks.net.variants import TCP, Variant

DEFAULT_RATES = ["100mbit", "1gbit"]
CODECS = ("fp16", "bf16", "int8", "int4", "int2", "onebit", "topk:0.01")
DEFAULT_VARIANTS = ["gloo", "gloo+fp16", "ringdist", *(f"ringdist:{codec}" for codec in CODECS)]


def variant(text: str) -> str:
    try:
        return Variant.parse(text).text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def rate(text: str) -> str:
    if not net.RATE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected none, or a rate as 100mbit or 1gbit")
    return text


def parse_arguments(words: list[str]) -> argparse.Namespace:
    own, command = words, []
    if "--" in words:
        cut = words.index("--")
        own, command = words[:cut], words[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.net",
        usage="%(prog)s [options] [-- script.py arguments ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    few = range(2, net.MAX_HOSTS + 1)
    add("--hosts", type=int, nargs="+", default=[4], choices=few, metavar="N", help="default: 4")
    add("--rate", type=rate, nargs="+", help=f"default: {' '.join(DEFAULT_RATES)}")
    add("--congestion", default="cubic", metavar="NAME", help="of TCP: cubic (default), bbr, reno")
    add("--nproc-per-host", type=int, default=1, metavar="N", help="ranks (default: 1)")
    add("--out", type=Path, default=Path("build/bench-net"), metavar="FOLDER")
    of = parser.add_argument_group("of the allreduce benchmark, with no script given")
    of.add_argument("--variants", type=variant, nargs="+", default=DEFAULT_VARIANTS, metavar="V")
    of.add_argument("--sizes", nargs="+", default=["16M"], metavar="BYTES", help="default: 16M")
    of.add_argument(
        "--operations",
        nargs="+",
        choices=SIZED,
        help="instead of the allreduce benchmark: these, of fp32, without codecs and casts",
    )
    of.add_argument("--dtype", choices=("fp32", "fp16", "bf16"), default="fp32")
    of.add_argument("--data", type=Path, metavar="FILE.pt", help="reduce this, not random numbers")
    of.add_argument("--seconds", type=float, default=10.0, help="per variant (default: 10)")
    of.add_argument("--rounds", type=int, default=5, help="that these are spread over (default: 5)")
    args = parser.parse_args(own)
    if args.nproc_per_host < 1 or args.rounds < 1 or args.seconds <= 0:
        parser.error("--nproc-per-host, --rounds and --seconds: expected more than 0")
    args.rate = args.rate or (["1gbit"] if command else DEFAULT_RATES)
    if command and len(args.hosts) * len(args.rate) > 1:
        parser.error("a script runs on one number of hosts and one rate")
    args.command = command
    return args


def worker(args: argparse.Namespace, of_rate: str, json: Path) -> list[str]:
    """What torchrun runs when no script was given."""
    # The bound, always, and each variant once.
    variants = list(dict.fromkeys([TCP, *args.variants]))
    shared = [
        *("--variants", *variants),
        *("--sizes", *args.sizes),
        *("--rounds", str(args.rounds)),
        *("--links", f"{of_rate} {args.congestion}"),
        *("--per-host", str(args.nproc_per_host)),
        *("--json", str(json)),
    ]
    if args.operations:
        return ["-m", "benchmarks.net.operations", "--operations", *args.operations, *shared]
    return [
        *("-m", "benchmarks.net.allreduce"),
        *("--dtype", args.dtype),
        *(("--data", str(args.data)) if args.data else ()),
        *("--seconds", str(args.seconds)),
        *("--interface", net.INTERFACE),
        *shared,
    ]


def run(args: argparse.Namespace, count: int, of_rate: str) -> int:
    name = f"{count}hosts-{of_rate}"
    what = "operations" if args.operations else "allreduce"
    json = args.out / f"{what}-{name}.json"
    command = args.command or worker(args, of_rate, json)
    with net.Hosts(count, of_rate, args.congestion) as hosts:
        status = torchrun(hosts, command, args.out / f"logs-{name}", args.nproc_per_host)
    if status == 0 and args.operations:
        print(f"\nwritten: {json}\n")
    elif status == 0 and not args.command:
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
        for count in args.hosts:
            for of_rate in args.rate:
                if status := run(args, count, of_rate):
                    return status
    except KeyboardInterrupt:
        print("interrupted; the hosts are removed", file=sys.stderr)
        return 130
    except net.CommandError as error:
        print(f"the hosts could not be made: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
