"""``python -m torch_ringdist tune``: measures message costs on these hosts for the planner."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from torch_ringdist import _units
from torch_ringdist._costs import Costs, Link, made_here
from torch_ringdist._output_paths import check_writable
from torch_ringdist._progress_bar import Bar
from torch_ringdist._tune_fit import Fit, fit
from torch_ringdist._tune_hosts import Between, Found, Launch, TuneError, inside, naming

DEFAULT_FILE = "ringdist-costs.json"
_VARIABLE = "RINGDIST_COSTS"
_LEAST_SECONDS = 1.0
_MOST_SECONDS = 3600.0

_DESCRIPTION = """\
Measure what messages cost on these hosts, and write the file of constants that RINGDIST_COSTS
names: from rank 0's the planner counts which algorithm takes least time. Processes of this host
exchange messages over ringdist itself, of many sizes, one way, both ways and back and forth; the
least time of each over all rounds counts; the constants are those that fit all of them best.

  inside a host      measured here, by processes that this command starts
  between hosts      measured where torchrun starts it on several hosts, one process on each; else
                     the built-in constants, for --rate and --latency

Run it while the hosts are otherwise idle. It asks for no root, and changes nothing but the file.
"""

_EXAMPLES = """\
examples:
  python -m torch_ringdist tune --out costs.json
  RINGDIST_COSTS=costs.json torchrun ... train.py
      Measure once; count with it from then on. In each group, subgroups too, the file of its own
      rank 0 counts: give the same one to all hosts.

  python -m torch_ringdist tune --out costs.json --rate 1gbit --latency 50us
      Between hosts is not measured: lines of 1 Gbit/s.

  torchrun --nnodes 2 --nproc-per-node 1 --node-rank N --master-addr HOST \\
           -m torch_ringdist tune --out costs.json
      On each of the hosts, N being 0, 1, ...: between them is measured, too. Host 0 writes the
      file: copy it to the others.
      (RINGDIST_SOCKET_IFNAME chooses the network.)

  python -m torch_ringdist plan --ranks 8 --hosts 2 --bytes 1M --costs costs.json
      What the planner makes of it.
"""

_MEANINGS = {
    "latency": "from one rank to another, besides what follows",
    "line": "all that a host sends, and all that it receives; inside it, its memory",
    "copies": "what a rank's core puts in or takes out, at each end",
    "per message": "of a rank's time, at each end",
    "framing": "besides the payload (built in)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"to write, in place of one that is there (default: what {_VARIABLE} names, else "
        f"{DEFAULT_FILE})",
    )
    add("--seconds", type=float, default=50.0, help="to measure, in all (default: 50)")
    add("--rate", metavar="R", help="between hosts, not measured: 100mbit, 1gbit")
    add("--latency", metavar="T", help="between hosts, not measured: 50us, 1ms")
    add("--details", action="store_true", help="also print every time, and what the fit says of it")
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> None:
    """Measures the costs, prints them and writes the file.

    Raises:
        ValueError: an option that is not accepted, or a file that cannot be written. It is raised
            before anything is measured.
        TuneError: a process of the measurement failed.
    """
    launch = Launch.of(os.environ)
    if not launch.first:
        return
    built_in = _built_in(args, launch)
    if not _LEAST_SECONDS <= args.seconds <= _MOST_SECONDS:
        raise ValueError(
            f"--seconds: expected {_LEAST_SECONDS:g} to {_MOST_SECONDS:g}, got {args.seconds}"
        )
    named = os.environ.get(_VARIABLE)
    out = Path(args.out or named or DEFAULT_FILE)
    writes = launch.host == 0
    if writes:
        check_writable(out, _VARIABLE if named and not args.out else "--out")
    bar = Bar(writes)
    with naming(launch):
        costs = _measure(args, launch, built_in, bar)
    if not writes:
        return
    try:
        costs.to_file(out)
    except OSError as error:
        reason = f"{error.strerror}; what was found is printed above"
        raise TuneError(f"{str(out)!r} cannot be written: {reason}") from None
    print(f"\nwritten: {out}\nTo count with it: export {_VARIABLE}={out.resolve()}")
    if launch.hosts > 1:
        print("On the other hosts: a copy. In each group the file of its own rank 0 counts.")


def _measure(args: argparse.Namespace, launch: Launch, built_in: Costs, bar: Bar) -> Costs:
    """Measures, prints the results, and returns the costs with their origin."""
    several = launch.hosts > 1
    writes = launch.host == 0
    each = args.seconds / (2 if several else 1)
    between = Between(launch) if several else None
    costs, made = built_in, made_here()
    if writes:
        found = inside(each, lambda what, share: bar.show("inside a host", share, what))
        costs = replace(costs, inside=_report("inside a host", found, costs.inside, args, bar))
        made["inside"] = found.by
    if between is None:
        made["between"] = f"not measured: {_assumed(args)}"
        print(f"\nbetween hosts: {made['between']}\n{_constants(costs.between)}")
    else:
        of_hosts = between.measure(each, lambda what, s: bar.show("between hosts", s, what))
        if of_hosts:
            link = _report("between hosts", of_hosts, costs.between, args, bar)
            costs, made["between"] = replace(costs, between=link), of_hosts.by
        between.end()
    return replace(costs, made=made)


def _built_in(args: argparse.Namespace, launch: Launch) -> Costs:
    """Returns the built-in costs with the rate and latency of the options between hosts."""
    given = {"--rate": args.rate, "--latency": args.latency}
    if launch.hosts > 1 and (named := [name for name, text in given.items() if text is not None]):
        raise ValueError(f"{named[0]}: several hosts take part, between which it is measured")
    rate = None if args.rate is None else _units.parse_rate("--rate", args.rate)
    latency = None if args.latency is None else _units.parse_time("--latency", args.latency)
    return Costs.built_in(rate, latency)


def _assumed(args: argparse.Namespace) -> str:
    given = [f"{text}" for text in (args.rate, args.latency) if text is not None]
    return f"as built in, for {' and '.join(given)}" if given else "as built in"


def _report(what: str, found: Found, built_in: Link, args: argparse.Namespace, bar: Bar) -> Link:
    """Fits the constants to the samples, prints them and returns them."""
    fitted = fit(found.samples, built_in, inside=what == "inside a host")
    bar.clear()
    print(f"\n{what}: {found.by}, {found.rounds} rounds")
    print(_constants(fitted.model.link()))
    print(f"  {_quality(fitted)}", flush=True)
    if args.details:
        print(_details(fitted), flush=True)
    return fitted.model.link()


# Returns the constants as a table with their meanings.
def _constants(link: Link) -> str:
    words = {
        "latency": _units.format_seconds(link.latency_ns / 1e9),
        "line": _units.format_rate(8 * link.bytes_per_second),
        "copies": _units.format_rate(8 * link.copied_per_second),
        "per message": _units.format_seconds(link.per_message_ns / 1e9),
        "framing": f"{link.framing_bytes} B",
    }
    return "\n".join(f"  {name:12} {words[name]:>12}   {_MEANINGS[name]}" for name in words)


# Returns a line on how well the constants fit the samples.
def _quality(fitted: Fit) -> str:
    worst = fitted.worst
    return (
        f"the fit is off by {fitted.typical:.0%} typically, {fitted.off(worst):+.0%} at most "
        f"({worst.name}); what a call itself takes is not in it"
    )


# Returns a table of all samples, their predictions and errors.
def _details(fitted: Fit) -> str:
    lines = [f"  {'':22} {'measured':>10} {'fitted':>10}"]
    for sample in fitted.samples:
        measured, says = (
            _units.format_seconds(ns / 1e9) for ns in (sample.ns, fitted.model.predict(sample))
        )
        lines.append(f"  {sample.name:22} {measured:>10} {says:>10}  {fitted.off(sample):+.0%}")
    return "\n".join(lines)


__all__ = ["TuneError", "add_arguments", "run"]
