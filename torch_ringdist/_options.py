"""Options: the settings of one process group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch_ringdist import _native


class _Field(NamedTuple):
    """One row of the native module's list of options; that list is the only one."""

    name: str
    type: str
    default: str
    meaning: str


def _fields() -> dict[str, _Field]:
    return {row[0]: _Field(*row) for row in _native.load().options()}


class Options:
    """Settings of one "ringdist" process group.

        options = torch_ringdist.Options(algorithm="ring", segment_bytes=1 << 18)
        options.peer_timeout = 30.0
        dist.init_process_group("ringdist", pg_options=options)

    A field that is None, as all are at first, is left to the RINGDIST_* variable of the same name,
    and without that to the default. ``print(Options())`` lists the fields with their types, their
    defaults and what they mean. All ranks of a group have to be given the same.

    Options compare by value, can be copied and pickled, and may be changed until given to a group,
    which keeps a copy. Constructing one loads the native module, which has the list of fields.

    Raises:
        TypeError: an unknown field (the message lists them), or a value of the wrong type.
        ValueError: a value that no field of that type accepts. The range of a field is checked
            when the group is created.
        ImportError: the native module is missing or was built for another torch.

    An object that is being changed must not be used by another thread.
    """

    __hash__ = None  # type: ignore[assignment]  # mutable, compared by value

    _values: dict[str, str | int | float | bool]

    def __init__(self, **fields: str | int | float | bool | None) -> None:
        object.__setattr__(self, "_values", {})
        known = _fields()
        for name, value in fields.items():
            if name not in known:
                raise TypeError(_unknown(name, known))
            self._put(known[name], value)

    def _put(self, field: _Field, value: Any) -> None:
        if value is None:
            self._values.pop(field.name, None)
        else:
            _check(field, value)
            self._values[field.name] = value

    def __setattr__(self, name: str, value: Any) -> None:
        known = _fields()
        if name not in known:
            raise AttributeError(_unknown(name, known))
        self._put(known[name], value)

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for special names on an object that is not initialised yet.
        if not name.startswith("_"):
            known = _fields()
            if name in known:
                return self._values.get(name)
            raise AttributeError(_unknown(name, known))
        raise AttributeError(f"Options has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_fields()})

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Options) else NotImplemented

    def __reduce__(self) -> tuple[Callable[..., Options], tuple[dict[str, Any]]]:
        return _restore, (dict(self._values),)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in sorted(self._values.items()))
        return f"Options({given})"

    def __str__(self) -> str:
        return "\n".join(["torch_ringdist.Options", *self._lines()])

    def _lines(self) -> Iterator[str]:
        rows = [
            (field, repr(self._values[name]) if name in self._values else "not set")
            for name, field in _fields().items()
        ]
        names = max((len(field.name) for field, _ in rows), default=0)
        values = max((len(value) for _, value in rows), default=0)
        for field, value in rows:
            yield (
                f"  {field.name:{names}}  {value:{values}}  {field.type:5}  {field.meaning} "
                f"(default: {field.default or 'empty'})"
            )

    def as_text(self) -> dict[str, str]:
        """The fields that are set, each as the text its RINGDIST_* variable would have."""
        return {name: _text(value) for name, value in self._values.items()}


def _restore(values: dict[str, Any]) -> Options:
    return Options(**values)


def _unknown(name: str, known: dict[str, _Field]) -> str:
    return f"Options has no field {name!r}; have: {', '.join(sorted(known))}"


def _text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _check(field: _Field, value: Any) -> None:
    accepted = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}[field.type]
    # A bool is an int to Python; segment_bytes=True is a mistake to everyone else.
    if not isinstance(value, accepted) or (isinstance(value, bool) and field.type != "bool"):
        raise TypeError(
            f"Options.{field.name}: expected {field.type} or None, "
            f"got {value!r} of type {type(value).__name__} ({field.meaning})"
        )
    problem = ""
    if field.type == "int" and not -(2**63) <= value < 2**63:
        problem = "an int of 64 bits"
    elif field.type == "float" and not math.isfinite(value):
        problem = "a finite number"
    elif field.type == "str" and "\0" in value:
        problem = "text without NUL"
    if problem:
        raise ValueError(f"Options.{field.name}: expected {problem}, got {value!r}")
