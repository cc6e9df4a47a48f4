"""Pages of docs/: their generated parts match the code, and the commands in their blocks exist."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.tree_check import TOOLS

sys.path.insert(0, str(TOOLS))
import make_reference

ROOT = TOOLS.parent
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
PARSERS = make_reference.parsers()
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OPERATORS = set("();<>|&") | {"&&", "||", ">>"}
OF_TREE = re.compile(r"(tools|tests|examples|benchmarks)/[\w./-]+\.(py|sh)")


def blocks(language: str) -> list[object]:
    """Returns the blocks of a language, each named by its page and line."""
    out: list[object] = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        for found in FENCE.finditer(text):
            if found[2] == language:
                line = text.count("\n", 0, found.start()) + 1
                place = f"{page.relative_to(ROOT)}:{line}"
                out.append(pytest.param(textwrap.dedent(found[3]), id=place))
    return out


def commands(block: str) -> Iterator[list[str]]:
    """Yields the words of each command of a shell block."""
    text = ""
    for line in block.replace("\\\n", " ").splitlines():
        text += line
        shell = shlex.shlex(text, posix=True, punctuation_chars=True)
        shell.whitespace_split, shell.commenters = True, "#"
        try:
            words = [*shell, ";"]
        except ValueError:  # a quotation goes on in the next line
            text += "\n"
            continue
        text = ""
        while words:
            end = next(place for place, word in enumerate(words) if word in OPERATORS)
            yield words[:end]
            del words[: end + 1]


def unknown_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[str]:
    known = {text: action for action in parser._actions for text in action.option_strings}
    starts_script = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if word == "--" or (starts_script and not word.startswith("-")):
            return  # the rest belongs to the script
        if name.startswith("-") and name not in known:
            yield f"{parser.prog}: no option {name}"
        elif name.startswith("-") and known[name].nargs != 0 and not equals:
            next(rest, None)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def unknown_names(words: Sequence[str]) -> Iterator[str]:
    """Yields targets, modules, options and files of a command that do not exist."""
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    program = Path(words[0]).name if words else ""
    if program == "make":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        yield from (f"make: no target {name}" for name in names if name not in TARGETS)
    elif program == "ringdistrun":
        yield from unknown_options(PARSERS["ringdistrun"], words[1:])
    elif program == "ringdist" or "-m" in words[:-1]:
        at = words.index("-m") + 1 if program != "ringdist" else 0
        module, *rest = ["torch_ringdist" if at == 0 else words[at], *words[at + 1 :]]
        names = [" ".join(rest[:count]) for count in (2, 1)]
        command = next((name for name in names if name in PARSERS), None)
        if module == "torch_ringdist" and command:
            yield from unknown_options(PARSERS[command], rest[len(command.split()) :])
        elif module == "torch_ringdist" and rest[:1] not in ([], ["--help"], ["--version"]):
            yield f"torch_ringdist has no command {rest[0]}"
        elif module.startswith(("benchmarks.", "tests.")) and not is_module(module):
            yield f"no module {module}"
    yield from (f"no file {w}" for w in words if OF_TREE.fullmatch(w) and not (ROOT / w).is_file())


def test_generated_parts_match_the_code(capsys: pytest.CaptureFixture[str]):
    assert make_reference.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_compile(block: str):
    if block.rstrip().rpartition("\n")[2].startswith("@"):
        block += "def decorated(): ...\n"
    compile(block, "block", "exec")


@pytest.mark.parametrize("block", blocks("sh"))
def test_commands_of_shell_blocks_exist(block: str):
    assert [problem for words in commands(block) for problem in unknown_names(words)] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("make no-such-target", "make: no target no-such-target"),
        ("X=1 python -m torch_ringdist plan --rank 8", "ringdist plan: no option --rank"),
        ("ringdist status --wach", "ringdist status: no option --wach"),
        ("ringdist state", "torch_ringdist has no command state"),
        ("python -m torch_ringdist plans", "torch_ringdist has no command plans"),
        ("ringdistrun -np 2 --hostz a python train.py --own", "ringdistrun: no option --hostz"),
        ("python -m benchmarks.nothing | head", "no module benchmarks.nothing"),
        (".venv/bin/python tools/nothing.py", "no file tools/nothing.py"),
    ],
)
def test_a_wrong_name_is_found(line: str, problem: str):
    [found] = [one for words in commands(line) for one in unknown_names(words)]
    assert found.startswith(problem)


def test_arguments_of_a_script_are_its_own():
    block = (
        "python -m torch_ringdist run --nproc-per-node 4 \\\n  train.py --epochs 3  # four ranks\n"
    )
    block += "bash -c 'make no-such-target\n  --rank 2'\n"
    assert [one for words in commands(block) for one in unknown_names(words)] == []
