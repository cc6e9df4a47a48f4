"""Numbers of ranks per host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.net.hosts import MAX_HOSTS

MAX_RANKS = 64


@dataclass(frozen=True)
class Layout:
    """Ranks per host, numbered host by host. As text it is "4x1", four hosts with one rank, or
    "1+2+3"."""

    per_host: tuple[int, ...]

    @classmethod
    def parse(cls, text: str, least_hosts: int = 2) -> Layout:
        """Parses the text. Raises ValueError."""
        if match := re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", text):
            per_host = (int(match[2]),) * int(match[1])
        elif re.fullmatch(r"[0-9]{1,4}(\+[0-9]{1,4})*", text):
            per_host = tuple(map(int, text.split("+")))
        else:
            raise ValueError(f"{text!r}: expected hosts x ranks of each, as 4x1, or 1+2+3")
        enough = least_hosts <= len(per_host) <= MAX_HOSTS
        if not enough or min(per_host) < 1 or sum(per_host) > MAX_RANKS:
            raise ValueError(
                f"{text!r}: expected {least_hosts} to {MAX_HOSTS} hosts of 1 rank or more, "
                f"{MAX_RANKS} ranks at most"
            )
        return cls(per_host)

    @property
    def text(self) -> str:
        if len(set(self.per_host)) == 1:
            return f"{self.hosts}x{self.per_host[0]}"
        return "+".join(map(str, self.per_host))

    @property
    def hosts(self) -> int:
        return len(self.per_host)

    @property
    def world(self) -> int:
        return sum(self.per_host)

    def host_of(self, rank: int) -> int:
        return list(self.ranks_hosts())[rank]

    def is_first(self, rank: int) -> bool:
        """Returns True if the rank is the first of its host."""
        hosts = list(self.ranks_hosts())
        return hosts.index(hosts[rank]) == rank

    def ranks_hosts(self) -> Iterator[int]:
        """Yields the host of each rank, in rank order."""
        for host, count in enumerate(self.per_host):
            yield from [host] * count
