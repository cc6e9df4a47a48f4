"""Writes the generated parts of docs/reference: settings, command line, API.

A part lies between `<!-- generated: KIND ... -->` and `<!-- end -->`. The rest of a page is written
by hand. Kinds:

  settings             table of the settings; its last column is kept if the page has the row
  command NAME         help of `python -m torch_ringdist NAME`, or of ringdistrun
  api MODULE PATTERN*  signatures and docstrings of a module's public names, in this order

Usage: make_reference.py [--check]. With --check it writes no page, names each one that differs from
the code, and exits with 1. It needs the built package.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from unittest import mock

import reference_api
from reference_api import WIDTH

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
sys.path.insert(0, str(ROOT))  # the package of this checkout
PART = re.compile(r"(<!-- generated: (.*?) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def settings(old: str) -> str:
    rows = [line.strip("|").split(" | ") for line in old.splitlines() if line.startswith("| `")]
    kept = {row[0].strip(): row[-1].strip() for row in rows}
    table = "\n| variable | option | type | default | what it does |\n|---|---|---|---|---|\n"
    for name, kind, default, meaning in import_module("torch_ringdist._native").load().options():
        variable = f"`RINGDIST_{name.upper()}`"
        cells = (variable, f"`{name}`", kind, f"`{default}`" if default else "empty")
        table += f"| {' | '.join(cells)} | {kept.get(variable, meaning)} |\n"
    return table


class Help(argparse.RawDescriptionHelpFormatter):
    """Lays out help alike in all versions of Python, and wraps long lines of texts."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        return f"{names} {self.arguments_of(action)}".strip()

    def arguments_of(self, action: argparse.Action) -> str:
        default = action.metavar or action.dest
        if action.option_strings:
            default = self._get_default_metavar_for_optional(action)
        return "" if action.nargs == 0 else self._format_args(action, str(default))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (
            textwrap.fill(line, WIDTH) if len(line) > WIDTH else line for line in text.split("\n")
        )
        return textwrap.indent("\n".join(lines).strip("\n"), indent)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Returns the parser of each command."""
    found: dict[str, argparse.ArgumentParser] = {}

    def add(name: str, parser: argparse.ArgumentParser) -> None:
        commands = [one for one in parser._actions if isinstance(one.choices, dict)]
        for each, inner in commands[0].choices.items() if commands else ():
            add(f"{name} {each}".strip(), inner)
        if not commands:
            found[name] = parser

    commands = import_module("torch_ringdist.__main__")
    for name in commands._COMMANDS:  # a parser has the options of one command only
        [choices] = [one.choices for one in commands._parser(name)._actions if one.choices]
        add(name, choices[name])
    ringdistrun = import_module("torch_ringdist._launch.ringdistrun")
    keep = mock.patch.object(
        argparse.ArgumentParser, "print_help", lambda self: add("ringdistrun", self)
    )
    with keep, contextlib.suppress(SystemExit):
        ringdistrun.parse_arguments(["--help"])
    return found


def command(parser: argparse.ArgumentParser) -> str:
    shown = Help(parser.prog)
    positional = [shown.arguments_of(one) for one in parser._actions if not one.option_strings]
    parser.usage = " ".join(["%(prog)s [options]", *positional])
    parser.formatter_class, parser.color = Help, False  # type: ignore[attr-defined]
    return f"\n```text\n{parser.format_help().strip()}\n```\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page differs")
    args = parser.parse_args(arguments)
    commands, listed, problems = parsers(), dict[str, set[str]](), list[str]()

    def made(part: re.Match[str]) -> str:
        kind, *words = part[2].split()
        if kind == "settings":
            return part[1] + settings(part[0]) + part[3]
        if kind == "command":
            return part[1] + command(commands.pop(" ".join(words))) + part[3]
        module = import_module(words[0])
        names = reference_api.matching(module, words[1:])
        listed.setdefault(words[0], set()).update(names)
        text = "".join(reference_api.markdown(name, getattr(module, name)) for name in names)
        return part[1] + text + part[3]

    for page in sorted(PAGES.glob("*.md")):
        old = page.read_text()
        new = PART.sub(made, old)
        if args.check and new != old:
            problems.append(
                f"{page}: differs from the code; tools/make_reference.py writes it anew"
            )
        elif new != old:
            page.write_text(new)
    problems += [f"{PAGES}: no page has the command {name!r}" for name in commands]
    for name, names in listed.items():
        missing = [one for one in reference_api.public(import_module(name)) if one not in names]
        problems += [f"{PAGES}: no page has {name}.{one}" for one in missing]
    if problems:
        print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
