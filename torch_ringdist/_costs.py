"""Cost constants of the planner, and the file that stores them (RINGDIST_COSTS).

`python -m torch_ringdist tune` writes such a file:

    {"format": "torch-ringdist costs", "version": 1,
     "inside":  {"latency_ns": 200, "bytes_per_second": 4e10, "copied_per_second": 1e10,
                 "per_message_ns": 300, "framing_bytes": 72},
     "between": {the same five keys},
     "made": {"host": "n1", "date": "2026-01-31T12:00:00+00:00", "torch_ringdist": "0.1.0"}}

On an idle link, a message of n bytes takes:

    per_message + n / copied_per_second         of the sender's time
    latency + (n + framing) / bytes_per_second  on the line
    per_message + n / copied_per_second         of the receiver's time

`inside` describes a host, where the line is its memory. `between` describes the network between
hosts: each host has one outgoing and one incoming line.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from torch_ringdist import _inspect, _native
from torch_ringdist._output_paths import replacing

FORMAT = "torch-ringdist costs"
VERSION = 1
_MOST_BYTES = 1 << 20  # size limit of a file; a valid one has about 1000 bytes

# Lowest and highest accepted value of each constant.
_BOUNDS = {
    "latency_ns": (0, 1e10),
    "bytes_per_second": (1e3, 1e15),
    "copied_per_second": (1e3, 1e15),
    "per_message_ns": (0, 1e9),
    "framing_bytes": (0, 65536),
}


@dataclass(frozen=True)
class Link:
    """Costs of a message on one kind of link; the module describes how the five constants count.

    Raises:
        ValueError: a constant is not a number or out of its range; the message names it.
    """

    latency_ns: float
    bytes_per_second: float
    copied_per_second: float
    per_message_ns: float
    framing_bytes: int

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            _check_number(name, getattr(self, name), *bounds)
        # The planner counts in whole nanoseconds and bytes. Rounding here makes a written file
        # state the values in use.
        for name in ("latency_ns", "per_message_ns", "framing_bytes"):
            object.__setattr__(self, name, round(getattr(self, name)))
        for name in ("bytes_per_second", "copied_per_second"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True)
class Costs:
    """Cost constants inside hosts and between them, and where they were measured.

    Costs compare by their constants. They are immutable, so any thread may use them.
    """

    inside: Link
    between: Link
    made: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Costs:
        """Reads a file that to_file() wrote.

        Raises:
            ValueError: the file cannot be read, has another format or version, or has a key that is
                missing, unknown or not accepted. The message names the file, the key, the given
                value and the accepted values.
        """
        try:
            return cls.from_json(_parse(_read(path)))
        except ValueError as error:
            raise ValueError(f"costs file {os.fspath(path)!r}: {error}") from None

    @classmethod
    def built_in(cls, bits_per_second: float | None = None, latency_ns: int | None = None) -> Costs:
        """Returns the default constants, which count if no file is named.

        Args:
            bits_per_second: rate of a line between hosts; the usual one if None.
            latency_ns: latency between hosts; the usual one if None.

        Raises:
            ImportError: the native module, which has the defaults, is missing.
        """
        native = _native.load()
        rate = native.USUAL_RATE if bits_per_second is None else bits_per_second
        latency = native.USUAL_LATENCY_NS if latency_ns is None else latency_ns
        numbers = native.usual_costs(rate, latency)
        return cls(_link("inside", numbers["inside"]), _link("between", numbers["between"]))

    @classmethod
    def in_force(cls, path: str) -> tuple[Costs, str]:
        """Returns the costs of the file, or the built-in ones if `path` is empty, and a description
        of that source.

        Raises:
            ValueError, ImportError: see from_file() and built_in().
        """
        if not path:
            return cls.built_in(), "built in"
        costs = cls.from_file(path)
        made = ", ".join(costs.made[key] for key in ("host", "date") if key in costs.made)
        return costs, f"file {path}" + (f" (made on {made})" if made else "")

    @classmethod
    def from_json(cls, given: Any) -> Costs:
        """Builds costs from the parsed content of a file. Raises ValueError as from_file(), without
        the file name."""
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            found = given.get("format") if isinstance(given, dict) else given
            raise ValueError(
                f"'format' must be {FORMAT!r}, got {_short(found)}; "
                "`python -m torch_ringdist tune` writes such files"
            )
        version = given.get("version")
        if isinstance(version, bool) or version != VERSION:
            raise ValueError(
                f"'version' must be {VERSION}, got {_short(version)}: it is of another version of "
                "torch_ringdist; run `python -m torch_ringdist tune` again"
            )
        _check_keys("", given, {"format", "version", "inside", "between", "made"})
        made = given["made"]
        texts = [*made, *made.values()] if isinstance(made, dict) else [None]
        if not all(isinstance(text, str) and text.isprintable() for text in texts):
            raise ValueError(f"'made' must be an object of printable texts, got {_short(made)}")
        return cls(_link("inside", given["inside"]), _link("between", given["between"]), made)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Writes the file atomically, and replaces an existing one.

        Raises:
            OSError: the file cannot be written. An existing file is unchanged.
        """
        made = dict(self.made) or made_here()
        content = {"format": FORMAT, "version": VERSION, **self.numbers(), "made": made}
        with replacing(Path(path)) as out:
            json.dump(content, out, indent=2)
            out.write("\n")

    def numbers(self) -> dict[str, dict[str, float]]:
        """Returns the ten constants by key "inside" and "between", as the native module takes
        them."""
        return {"inside": asdict(self.inside), "between": asdict(self.between)}


def made_here() -> dict[str, str]:
    """Returns the origin that a file records: host, date and versions."""
    return {
        "host": platform.node(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "torch_ringdist": _inspect.version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


# Returns the content of a file. Raises ValueError if it cannot be read or is too large.
def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        # Reading a pipe or a device might never end, or never begin.
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError("it is no regular file")
        with open(path, "rb") as source:
            content = source.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes: it is no file of costs")
    return content


# Parses JSON. Raises ValueError for invalid JSON and for duplicate keys.
def _parse(content: bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"key {twice!r} is there twice")
        return out

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=once)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None


# Builds a Link from an object of a file. Raises ValueError that names the key.
def _link(name: str, given: Any) -> Link:
    if not isinstance(given, dict):
        raise ValueError(f"{name!r} must be an object, got {_short(given)}")
    _check_keys(f"{name}.", given, {one.name for one in fields(Link)})
    try:
        return Link(**given)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


# Raises ValueError unless the keys of `given` are exactly those of `known`.
def _check_keys(prefix: str, given: dict[str, Any], known: set[str]) -> None:
    have = ", ".join(sorted(prefix + key for key in known))
    for key in sorted(known - given.keys()):
        raise ValueError(f"'{prefix}{key}' is missing; needed: {have}")
    for key in sorted(given.keys() - known):
        raise ValueError(f"'{prefix}{key}' is unknown; known: {have}")


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # also rejects NaN
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {_short(value)}")


# Returns repr(value), cut to 60 characters.
def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
