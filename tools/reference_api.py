"""Signatures and docstrings of a module's public names, as Markdown with stubs of Python."""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

WIDTH = 100
LONG_LINE = re.compile(rf"^( *).{{{WIDTH},}}", re.MULTILINE)


class Raw(str):
    """Text that is its own repr()."""

    __repr__ = str.__str__


def shown(value: Any) -> Any:
    """Returns a default or an annotation as text that depends on no version and no address."""
    if value is inspect.Signature.empty or isinstance(value, str):
        return value
    if isinstance(value, enum.Enum):
        return Raw(f"{type(value).__name__}.{value.name}")
    if inspect.isclass(value):
        return Raw(value.__qualname__)
    return Raw(re.sub("<.*>", "...", inspect.formatannotation(value)))


def annotation(value: Any) -> Any:
    return Raw(value) if isinstance(value, str) else shown(value)


def function_lines(name: str, thing: Any) -> list[str]:
    """Returns a function with its docstring, as in a stub file."""
    signature = inspect.signature(thing)
    given = [
        one.replace(annotation=annotation(one.annotation), default=shown(one.default))
        for one in signature.parameters.values()
    ]
    result = annotation(signature.return_annotation)
    text = str(signature.replace(parameters=given, return_annotation=result))
    text = re.sub(r"(?<!,) ", "\0", f"def {name}{text}:")  # lines break after commas only
    head = textwrap.wrap(text, WIDTH, subsequent_indent=8 * " ", break_on_hyphens=False)
    head = "\n".join(head).replace("\0", " ").split("\n")
    doc = docstring(thing.__doc__)
    return [*head, *doc] if doc else [*head[:-1], head[-1] + " ..."]


def wrapped(line: re.Match[str]) -> str:
    return textwrap.fill(line[0], WIDTH, subsequent_indent=line[1] + "    ")


def docstring(text: str | None) -> list[str]:
    text = LONG_LINE.sub(wrapped, inspect.cleandoc(text or ""))
    quoted = f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""'
    return textwrap.indent(quoted, "    ").split("\n") if text else []


def class_lines(name: str, kind: type) -> Iterator[str]:
    own = vars(kind)
    text = own.get("__doc__") or ""
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    shown_bases = ", ".join(base for base in bases if not base.startswith("_"))
    yield f"class {name}({shown_bases}):" if shown_bases else f"class {name}:"
    yield from docstring("" if text.startswith(f"{name}(") else text)  # a dataclass' signature
    members = {"__init__": own["__init__"]} if "__init__" in own else {}
    members |= {key: value for key, value in own.items() if not key.startswith("_")}
    for key, value in members.items():
        thing = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not inspect.isfunction(thing):
            continue
        yield ""
        if thing is not value:
            yield f"    @{type(value).__name__}"
        yield from (f"    {line}".rstrip() for line in function_lines(key, thing))


def public(module: Any) -> list[str]:
    names = getattr(module, "__all__", None) or sorted(one for one in dir(module) if one[0] != "_")
    return [one for one in names if not inspect.ismodule(getattr(module, one))]


def matching(module: Any, patterns: Sequence[str]) -> list[str]:
    """Returns the public names that match, in the order of the patterns."""
    names = public(module)
    found = [one for pattern in patterns for one in names if fnmatchcase(one, pattern)]
    return list(dict.fromkeys(found))


def markdown(name: str, thing: Any) -> str:
    """Returns a heading and a stub."""
    if inspect.isclass(thing) and thing.__name__ != name:
        lines = [f"{name} = {thing.__name__}"]
    elif inspect.isclass(thing):
        lines = list(class_lines(name, thing))
    elif callable(thing):
        lines = function_lines(name, thing)
    else:
        lines = [f"{name}: {type(thing).__name__}"]
    return "\n".join([f"\n### {name}", "", "```python", *lines, "```", ""])
