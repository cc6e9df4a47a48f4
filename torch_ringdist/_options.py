"""Options, the settings of one process group: a dataclass made from the native module's table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch_ringdist import _native

_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


class _Options:
    """Settings of one "ringdist" process group.

        options = torch_ringdist.Options(algorithm="ring", segment_bytes=128 * 1024)
        options.warn_after = 60.0
        dist.init_process_group("ringdist", pg_options=options)

    All fields are None at first. A field that is None takes the value of the RINGDIST_* variable of
    the same name, or else the default. ``print(Options())`` also lists the fields. Options that
    change what is sent, such as `codec`, must be the same on all ranks of a group.

    Options compare by value, can be copied and pickled, and may be changed until they are given to
    a group, which keeps a copy. The first use of the class loads the native module, which has the
    list of fields.

    Raises:
        TypeError: an unknown field (the message lists the fields), or a value of the wrong type.
        ValueError: a value that no field of that type accepts. The range of a field is checked when
            the group is created.
        ImportError: the native module is missing or was built for another torch.

    An object that is being changed must not be used by another thread.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        fields = _fields(type(self))
        if name not in fields:
            raise AttributeError(_unknown(name, fields))
        if value is not None:
            _check(fields[name], value)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # called for names that are not fields
        if name.startswith("_"):
            raise AttributeError(f"Options has no attribute {name!r}")
        raise AttributeError(_unknown(name, _fields(type(self))))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in sorted(self._given().items()))
        return f"Options({given})"

    def __str__(self) -> str:
        values = {name: repr(value) for name, value in self._given().items()}
        lines = _lines(type(self), {"": "not set", **values})
        return "\n".join(["torch_ringdist.Options", *(f"  {line}" for line in lines)])

    def as_text(self) -> dict[str, str]:
        """Returns the fields that are set, as the text of their RINGDIST_* variables."""
        return {name: _text(value) for name, value in self._given().items()}

    # Returns the fields that are set and their values.
    def _given(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _fields(type(self))}
        return {name: value for name, value in values.items() if value is not None}


def made_of(rows: Iterable[tuple[str, str, str, str]]) -> type[_Options]:
    """Returns the Options class for rows of the native options(): name, type, default, meaning."""
    fields = [
        (
            name,
            _TYPES[kind] | None,
            dataclasses.field(
                default=None, metadata={"type": kind, "default": default, "meaning": meaning}
            ),
        )
        for name, kind, default, meaning in rows
    ]
    made = dataclasses.make_dataclass(
        "Options",
        fields,
        bases=(_Options,),
        namespace={"__module__": __name__},  # pickle finds the class by its module
        kw_only=True,
        repr=False,
    )
    if _Options.__doc__:
        head, raises, tail = _Options.__doc__.partition("    Raises:\n")
        listed = "".join(f"        {line}\n" for line in _lines(made, {"": ""}))
        made.__doc__ = f"{head}    Fields:\n{listed}\n{raises}{tail}"
    _name_unknown_fields(made)
    return made


def _name_unknown_fields(made: Any) -> None:
    """Makes __init__ list the existing fields in its error; Python's own message does not."""
    init = made.__init__

    @wraps(init)
    def __init__(self: Any, **given: Any) -> None:
        for name in given:
            if name not in _fields(made):
                raise TypeError(_unknown(name, _fields(made)))
        init(self, **given)

    made.__init__ = __init__


if TYPE_CHECKING:

    @dataclasses.dataclass(kw_only=True, repr=False)
    class Options:  # a test compares these fields with native options()
        algorithm: str | None = None
        segment_bytes: int | None = None
        memory: int | None = None
        peer_timeout: float | None = None
        socket_ifname: str | None = None
        port: str | None = None
        key_file: str | None = None
        cert: str | None = None
        cert_key: str | None = None
        ca: str | None = None
        deterministic: str | None = None
        transport: str | None = None
        device_path: str | None = None
        ucx: str | None = None
        codec: str | None = None
        costs: str | None = None
        log_level: str | None = None
        log_format: str | None = None
        nan_check: int | None = None
        warn_after: float | None = None
        destroy_grace: float | None = None

        def as_text(self) -> dict[str, str]: ...


def __getattr__(name: str) -> Any:
    if name != "Options":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return globals().setdefault(name, made_of(_native.load().options()))
    except ImportError as error:
        return _without_fields(str(error))


def _without_fields(problem: str) -> type[_Options]:
    """Returns a replacement of Options for when the native module, which has the fields, cannot be
    loaded.

    So help() and documentation tools work without the native module. An instantiation raises the
    ImportError.
    """

    class Options(_Options):
        def __init__(self, **fields: Any) -> None:
            raise ImportError(problem)

    Options.__doc__ = _Options.__doc__
    return Options


# Returns the dataclass fields by name.
def _fields(made: Any) -> dict[str, dataclasses.Field[Any]]:
    return made.__dataclass_fields__


def _unknown(name: str, fields: Iterable[str]) -> str:
    return f"Options has no field {name!r}; have: {', '.join(sorted(fields))}"


def _lines(made: Any, values: dict[str, str]) -> Iterator[str]:
    """Yields a line per field with its value from `values`; fields without one take the value of
    ""."""
    fields = _fields(made).values()
    column = max((len(values.get(field.name, values[""])) for field in fields), default=0)
    names = max((len(field.name) for field in fields), default=0)
    for field in fields:
        value = f"{values.get(field.name, values['']):{column}}  " if column else ""
        row = field.metadata
        yield (
            f"{field.name:{names}}  {value}{row['type']:5}  {row['meaning']} "
            f"(default: {row['default'] or 'empty'})"
        )


# Returns a value as the text of a RINGDIST_* variable.
def _text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


# Raises TypeError or ValueError if the field does not accept the value; ranges are checked later.
def _check(field: dataclasses.Field[Any], value: Any) -> None:
    kind, meaning = field.metadata["type"], field.metadata["meaning"]
    accepted: Any = (float, int) if kind == "float" else _TYPES[kind]
    # Python treats a bool as an int, but segment_bytes=True is a mistake.
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind != "bool"):
        raise TypeError(
            f"Options.{field.name}: expected {kind} or None, "
            f"got {value!r} of type {type(value).__name__} ({meaning})"
        )
    problem = ""
    if kind == "int" and not -(2**63) <= value < 2**63:
        problem = "an int of 64 bits"
    elif kind == "float" and not math.isfinite(value):
        problem = "a finite number"
    elif kind == "str" and "\0" in value:
        problem = "text without NUL"
    if problem:
        raise ValueError(f"Options.{field.name}: expected {problem}, got {value!r}")
