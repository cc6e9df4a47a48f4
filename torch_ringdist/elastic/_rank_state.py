"""State that ranks exchange at the beginning of a generation, and checks that they match."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from torch_ringdist._errors import ArgumentError
from torch_ringdist._printable import printable
from torch_ringdist.elastic import _messages

if TYPE_CHECKING:
    from torch_ringdist.elastic._state import State

_RECORD = 1024  # bytes of an encoded RankState
_MOST_STEPS, _MOST_RANKS = 1 << 62, 1 << 31
_HASH = re.compile("[0-9a-f]{32}")  # id of a process, or result of hash_of()


@dataclass(frozen=True)
class RankState:
    """State of one rank, which it sends to the others at the beginning of a generation.

    Attributes:
        id: id of the process.
        steps: number of committed steps.
        veteran: the rank was in a generation that trained, so its commits count.
        finished: its training function has returned.
        leaves: it hands over its residuals and leaves.
        start_ranks: number of ranks for the first step, from its launcher.
        terms: hash of the values that all ranks must agree on.
        content: hash of the contents that ranks of one step share; "" if it is not a veteran.
    """

    id: str
    steps: int
    veteran: bool
    finished: bool
    leaves: bool
    start_ranks: int
    terms: str
    content: str

    # Returns a byte tensor of fixed size with the state as JSON.
    def encode(self) -> torch.Tensor:
        record = json.dumps(asdict(self)).encode().ljust(_RECORD)
        return torch.tensor(list(record), dtype=torch.uint8, device="cpu")

    @staticmethod
    def decode(record: torch.Tensor) -> RankState | None:
        """Returns the decoded state, or None for invalid data of a newcomer. The format is JSON,
        because unpickling would run code of the sender."""
        try:
            values = json.loads(bytes(record.tolist()))
            one = RankState(**values)
        except (ValueError, TypeError, RecursionError):
            return None
        kinds = {"str": str, "int": int, "bool": bool}
        if any(type(values[field.name]) is not kinds[str(field.type)] for field in fields(one)):
            return None
        hashes = (one.id, one.terms, one.content or one.terms)
        in_range = 0 <= one.steps < _MOST_STEPS and 1 <= one.start_ranks < _MOST_RANKS
        return one if in_range and all(map(_HASH.fullmatch, hashes)) else None


@dataclass(frozen=True)
class GenerationView:
    """The states of all ranks of a generation, by rank."""

    standings: tuple[RankState, ...]

    @property
    def source(self) -> int:
        """Lowest rank with the most steps among the veterans; if none has trained, among the ranks
        with the terms of rank 0, which others have joined."""
        ranks = range(len(self.standings))
        veterans = [rank for rank in ranks if self.standings[rank].veteran]
        alike = [rank for rank in ranks if self.standings[rank].terms == self.standings[0].terms]
        return max(veterans or alike, key=lambda rank: (self.standings[rank].steps, -rank))

    @property
    def word(self) -> str:
        """Secret that is equal on all ranks. Ids of processes are in no store."""
        return hash_of({one.id: "" for one in self.standings})

    @property
    def has_trained(self) -> bool:
        return any(one.veteran for one in self.standings)

    @property
    def start_ranks(self) -> int:
        return self.standings[self.source].start_ranks

    @property
    def leaving(self) -> list[int]:
        """Ranks that leave now: all, or few enough that the remaining ones are a majority and can
        decide without them.

        One of two ranks may always leave.
        """
        leaving = [rank for rank, one in enumerate(self.standings) if one.leaves]
        size = len(self.standings)
        return leaving if len(leaving) == size else leaving[: max(1, (size - 1) // 2)]

    @property
    def newcomers(self) -> list[int]:
        return [rank for rank, one in enumerate(self.standings) if not one.veteran]

    @property
    def all_finished(self) -> bool:
        return all(one.finished for one in self.standings)

    @property
    def any_needs_state(self) -> bool:
        return any(map(self.needs_state, range(len(self.standings)))) or not self.has_trained

    def needs_state(self, rank: int) -> bool:
        """Returns True if the rank needs the state of the source."""
        source, one = self.standings[self.source], self.standings[rank]
        fresh = not one.veteran and rank != self.source
        return fresh or one.steps != source.steps

    def mismatched_ranks(self) -> list[int]:
        """Returns the ranks with terms that differ from those of the source."""
        wanted = self.standings[self.source].terms
        return [rank for rank, one in enumerate(self.standings) if one.terms != wanted]

    def differ(self) -> list[int]:
        """Returns veterans with the same steps and different contents; empty if all match."""
        by_step: dict[int, dict[str, list[int]]] = {}
        for rank, one in enumerate(self.standings):
            if one.veteran:
                by_step.setdefault(one.steps, {}).setdefault(one.content, []).append(rank)
        for contents in by_step.values():
            if len(contents) > 1:
                return sorted(rank for ranks in contents.values() for rank in ranks)
        return []


def exchange(mine: RankState) -> list[RankState | None]:
    """Returns the states of all ranks; None for a rank that sent invalid data, or the id of a lower
    rank."""
    size = dist.get_world_size()
    records = list(torch.empty(size, _RECORD, dtype=torch.uint8, device="cpu"))
    dist.all_gather(records, mine.encode())
    standings = [RankState.decode(record) for record in records]
    seen: set[str] = set()
    for rank, one in enumerate(standings):
        if one is not None and one.id in seen:
            standings[rank] = None
        seen.add(one.id if one is not None else "")
    return standings


def terms_of(state: State, min_ranks: int) -> dict[str, str]:
    """Returns the values that all ranks must agree on, by name."""
    terms = {
        f"entry {name!r}": part.describe() or "there"
        for name, part in state._parts.items()
        if part.given
    }
    if state._sampler is not None:
        terms |= {f"sampler: {key}": str(v) for key, v in state._sampler.settings().items()}
    if state._trusts:
        terms["trust_members"] = "True"
    return {**terms, "min_ranks": str(min_ranks)}


def terms_in(text: str) -> dict[str, str]:
    """Returns the terms of a group, which its lowest rank has written to the store as JSON.

    Raises:
        torch.distributed.DistBackendError: something else has written the text.
    """
    try:
        terms = json.loads(text)
        _messages.check_texts(terms)
    except (ValueError, RecursionError) as error:
        raise dist.DistBackendError(
            "ringdist: elastic: the store has something else than the group's entries and shapes: "
            f"{error}"
        ) from error
    return dict(terms)


# Returns a hash of the values, independent of their order.
def hash_of(values: dict[str, str]) -> str:
    text = "\n".join(f"{name}\0{values[name]}" for name in sorted(values))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def refuse_mismatched(company: GenerationView, terms: dict[str, str], rank: int) -> None:
    """Raises on mismatched ranks. All ranks call it if there are any. Data of mismatched ranks is
    not read.

    Raises:
        ArgumentError: this rank is mismatched; the message names the first difference.
        MessageError: the source has sent something else.
    """
    source, check = company.source, _messages.check_texts
    theirs = _messages.broadcast(terms, source, "what ranks agree on", check)
    if rank in company.mismatched_ranks():
        text = difference(terms, f"rank {rank}", theirs, f"rank {source}")
        raise ArgumentError(f"ringdist: elastic: {text}")


def raise_difference(company: GenerationView, hashes: dict[str, str]) -> None:
    """Raises because veterans with the same steps differ. All ranks call it.

    Raises:
        ArgumentError: always, with the first tensor that differs and the ranks.
        MessageError: a rank has sent something else.
    """
    everyone = _messages.gather(hashes, "checksums of its tensors", _messages.check_texts)
    ranks = company.differ()
    with contextlib.suppress(dist.DistError):
        dist.barrier()  # every rank has the result before one ends
    step = company.standings[ranks[0]].steps
    for name in everyone[ranks[0]]:
        kinds: dict[str, list[int]] = {}
        for rank in ranks:
            if company.standings[rank].steps == step:
                kinds.setdefault(everyone[rank].get(name, ""), []).append(rank)
        if len(kinds) > 1:
            groups = " and ".join(f"ranks {group}" for group in kinds.values())
            raise ArgumentError(
                f"ringdist: elastic: after step {step} {printable(name)} is not the same on "
                f"{groups}. Did ranks train on what was not averaged, or change the state outside "
                "of a step?"
            )
    raise ArgumentError(f"ringdist: elastic: after step {step} the ranks {ranks} differ")


def difference(ours: dict[str, str], who: str, theirs: dict[str, str], whom: str) -> str:
    """Returns the first difference between `who` and `whom` as text; empty if there is none."""
    for key in sorted({*ours, *theirs}):
        here, there, name = ours.get(key), theirs.get(key), printable(key)
        if here == there:
            continue
        if here is None:
            return f"{whom} has {name}, {who} has not"
        if there is None:
            return f"{who} has {name}, {whom} has not"
        return f"{name} is {_first(here, there)} on {who}, {_first(there, here)} on {whom}"
    return ""


def _first(text: str, other: str) -> str:
    """Returns the first line of `text` that is not in `other`."""
    others = set(other.split("\n"))
    return next((repr(line) for line in text.split("\n") if line not in others), "without more")


def content_of(state: State) -> dict[str, str]:
    """Returns checksums of the shared parts of the state, by their paths."""
    return {
        f"{name}{path}": value
        for name, snapshot in state._snapshots.items()
        if state._parts[name].shared
        for path, value in snapshot.hashes().items()
    }


def ranks_text(ranks: list[int]) -> str:
    """Returns text such as "ranks 1, 2"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
