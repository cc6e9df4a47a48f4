"""Formats the result of `plan` as text: the choice, the alternatives and the messages."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from torch_ringdist import _plan_device, _units
from torch_ringdist._units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from torch_ringdist._plan import Question

_WIDTH = 100
_MOST_ARROWS = 8  # number of ranks above which only the sums of a round are shown
_MOST_LINES = 24  # limit for lines of different rounds
_JOINED = "~: walked with several segments to a message, so that it takes no longer"


def title(question: Question, answer: dict[str, Any]) -> str:
    """Returns a line that describes the operation. `answer` is the result of forecast()."""
    size = format_bytes(question.bytes)
    whole = "" if answer["in_place"] else " a part"
    of = f" of {size}{whole} {question.dtype}" if question.operation != "barrier" else ""
    op = f" {question.reduce_op}" if answer["reduces"] else ""
    root = f" from rank {question.root}" if question.operation in ("broadcast", "scatter") else ""
    root = f" to rank {question.root}" if question.operation in ("reduce", "gather") else root
    codec = f", codec {question.codec}" if question.codec else ""
    return f"{question.operation}{of}{op}{root}{codec}, {layout(question.hosts)}"


def layout(hosts: list[list[int]]) -> str:
    """Returns text such as "8 ranks on 2 hosts of 4"."""
    ranks = sum(map(len, hosts))
    head = f"{ranks} rank{'s' * (ranks > 1)} on {len(hosts)} host{'s' * (len(hosts) > 1)}"
    sizes = sorted({len(host) for host in hosts})
    if len(hosts) == 1:
        return head
    if len(sizes) == 1:
        return f"{head} of {sizes[0]}"
    return f"{head} of {sizes[0]} to {sizes[-1]}"


def as_text(question: Question, answer: dict[str, Any], route: dict[str, Any] | None = None) -> str:
    """Returns the whole text. `route` is the result of _plan_device.route()."""
    parts = [title(question, answer)]
    if route:
        parts += ["\n".join(_units.table(_plan_device.rows(route))), _plan_device.note(route)]
        if not route["host_op"]:
            return "\n\n".join(parts)
    chosen = _chosen(answer)
    rows = [
        ("choice", f"{answer['algorithm']}: {chosen['description']}"),
        ("why", answer["why"]),
        ("segments", _segments(question, answer)),
        ("costs", question.costs_from),
    ]
    head = _units.table([row for row in rows if row[1]])
    parts += ["\n".join(head), _alternatives(answer)]
    if question.codec:
        parts.append(
            "With a codec the walk counts its bytes, not its work; the formula is that of an op"
            " without."
        )
    parts.append(_picture(question, answer))
    return "\n\n".join(parts)


def _chosen(answer: dict[str, Any]) -> dict[str, Any]:
    return next(a for a in answer["alternatives"] if a["algorithm"] == answer["algorithm"])


def _segments(question: Question, answer: dict[str, Any]) -> str:
    if question.operation == "barrier":
        return ""
    count = answer["segment_count"]
    size = format_bytes(count * question.element_bytes)
    before = ", before its encoding" if question.codec else ""
    return f"of at most {count} element{'s' * (count > 1)}, {size}{before}"


def _alternatives(answer: dict[str, Any]) -> str:
    best = _chosen(answer).get("seconds")
    rows = [
        (
            "",
            "algorithm",
            "formula",
            "walked",
            "choice = 1",
            "messages",
            "inside hosts",
            "between",
            "",
        )
    ]
    notes = []
    last = float("inf")
    for one in sorted(answer["alternatives"], key=lambda one: one.get("seconds", last)):
        mark = "*" if one["algorithm"] == answer["algorithm"] else ""
        if "seconds" not in one:
            why = one["refusal"] or "its ranks differ and have too many steps to walk"
            formula = format_seconds(one["formula_seconds"]) if not one["refusal"] else "-"
            rows.append((mark, one["algorithm"], formula, "-", "", "", "", "", why))
            continue
        about = "~" if one["joined"] > 1 else ""
        notes += [one] * (one["joined"] > 1)
        ratio = f"{one['seconds'] / best:.2f}" if best else ""
        rows.append(
            (
                mark,
                one["algorithm"],
                format_seconds(one["formula_seconds"]),
                about + format_seconds(one["seconds"]),
                ratio,
                f"{one['messages']}",
                format_bytes(one["bytes_inside"]),
                format_bytes(one["bytes_between"]),
                "",
            )
        )
    lines = [line.rstrip() for line in _units.table(rows)]
    if notes:
        lines.append(_JOINED)
    return "\n".join(lines)


def _picture(question: Question, answer: dict[str, Any]) -> str:
    rounds = answer.get("rounds")
    if not rounds:
        return without_rounds(rounds)
    arrows = question.ranks <= _MOST_ARROWS
    describe = _arrows if arrows else _sums
    lines = [_places(question.hosts)]
    lines.append("Who sends what to whom; a round waits for the one before.")
    if arrows:
        lines.append("(-> inside a host, => between hosts; 3*2: two ranges to rank 3)")
    if question.codec:
        lines.append("(bytes are those of the values, before they are encoded)")
    bodies = [describe(question, one) for one in rounds]
    first = 0
    shown = 0
    while first < len(bodies):
        last = first
        while last + 1 < len(bodies) and bodies[last + 1] == bodies[first]:
            last += 1
        if shown == _MOST_LINES:
            lines.append(f"  ... and so on, {len(bodies) - first} rounds more")
            break
        name = f"round {first + 1}" if first == last else f"rounds {first + 1} to {last + 1}"
        head, *rest = bodies[first]
        lines.append(f"  {name}: {head}")
        lines += [f"    {line}" for line in rest]
        first = last + 1
        shown += 1
    return "\n".join(lines)


def without_rounds(rounds: list[dict[str, Any]] | None) -> str:
    """Explains why no rounds are shown: nothing is sent (an empty list), or the rounds are too many
    (None)."""
    if rounds is None:
        return "Its ranks differ and have too many steps for a picture."
    return "Nothing is sent."


def _places(hosts: list[list[int]]) -> str:
    shown = hosts if len(hosts) <= 8 else hosts[:3]
    lines = [f"host {i}: {_ranks(host)}" for i, host in enumerate(shown)]
    if len(shown) < len(hosts):
        lines += ["...", f"host {len(hosts) - 1}: {_ranks(hosts[-1])}"]
    return "\n".join(lines)


def _ranks(host: list[int]) -> str:
    if len(host) <= _MOST_ARROWS:
        return f"rank{'s' * (len(host) > 1)} {' '.join(map(str, host))}"
    return f"ranks {host[0]} to {host[-1]}"


def _arrows(question: Question, one: dict[str, Any]) -> list[str]:
    """Returns a line with the kinds of messages in the round, then lines of arrows for each
    kind."""
    host_of = {rank: i for i, host in enumerate(question.hosts) for rank in host}
    kinds: dict[str, dict[tuple[int, str], list[int]]] = {}
    for sender, receiver, count, mark in one["messages"]:
        size = format_bytes(count * question.element_bytes)
        what = "signals" if question.operation == "barrier" else f"{mark}s of {size}"
        arrow = "->" if host_of[sender] == host_of[receiver] else "=>"
        kinds.setdefault(what, {}).setdefault((sender, arrow), []).append(receiver)
    out = [", ".join(kinds)] if len(kinds) > 1 else [*kinds]
    for what, senders in kinds.items():
        cells = [
            f"{sender} {arrow} {_receivers(receivers)}"
            for (sender, arrow), receivers in sorted(senders.items())
        ]
        indent = f"{what}: " if len(kinds) > 1 else ""
        out += textwrap.wrap(
            indent + "   ".join(cell.replace(" ", "\0") for cell in cells),
            _WIDTH - 4,
            subsequent_indent="  ",
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [line.replace("\0", " ") for line in out]


def _receivers(receivers: list[int]) -> str:
    """Returns the receivers, each once; "3*2" receives two ranges."""
    counts = [(rank, receivers.count(rank)) for rank in sorted(set(receivers))]
    return " ".join(f"{rank}*{times}" if times > 1 else f"{rank}" for rank, times in counts)


# Returns a line with the messages and bytes of a round.
def _sums(question: Question, one: dict[str, Any]) -> list[str]:
    cells = []
    for where, text in (("inside", "inside hosts"), ("between", "between hosts")):
        messages, elements = one[f"messages_{where}"], one[f"elements_{where}"]
        if messages:
            size = format_bytes(elements / messages * question.element_bytes)
            cells.append(f"{messages} ranges {text}, {size} each")
    return [", ".join(cells)]


def scale_as_text(question: Question, per_host: int, rows: list[tuple[int, dict[str, Any]]]) -> str:
    """Returns a table with a line per number of ranks and a column per algorithm."""
    names = [one["algorithm"] for one in rows[0][1]["alternatives"]]
    table = [("ranks", "choice", *names)]
    about = False
    for size, answer in rows:
        cells = []
        for one in answer["alternatives"]:
            about |= one.get("joined", 1) > 1
            text = format_seconds(one["seconds"]) if "seconds" in one else "-"
            cells.append(("~" if one.get("joined", 1) > 1 else "") + text)
        table.append((str(size), answer["algorithm"], *cells))
    what = f"{question.operation} of {format_bytes(question.bytes)} {question.dtype}"
    per = counted(per_host, "rank")
    lines = [f"{what}, {per} a host; predicted", f"costs: {question.costs_from}", ""]
    lines += _units.table(table)
    if about:
        lines.append(_JOINED)
    return "\n".join(lines)
