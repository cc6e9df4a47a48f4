"""tools/check_words.py finds private words and fragments."""

from pathlib import Path

import pytest
from support.tree_check import run_check

GLOSSARY = """
| term | meaning | used so in | not |
|---|---|---|---|
| group | ranks that call each other | c10d | seat, roll call |
| iteration | a round of a loop | | (turn) |
"""
GOOD = {
    "docs/reference/glossary.md": GLOSSARY,
    "csrc/base/queue.h": "// One turn of work. `seat` is code.\nclass Queue { Turn turn(); };\n",
    "torch_ringdist/ddp.py": '"""The paper says why."""\nx = "who?"  # you know it\n',
    "docs/faq.md": "# Who\nIt is fine.\n\n    Who owes what?\n```\nwho\n```\n",
}
LONG = " ".join(["Words"] + ["words"] * 30)


def check(root: Path, files: dict[str, str], *options: str) -> tuple[int, list[str]]:
    return run_check("check_words.py", root, files, *options)


def test_plain_words(tmp_path: Path):
    assert check(tmp_path, GOOD) == (0, [])


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("csrc/base/a.h", "int a;\n\n// What a queue has.\n", "opening"),
        ("csrc/base/a.h", "int a;\n\n/* Whether it has anything. */\n", "opening"),
        ("tests/python/test_a.py", '\n\n"""Of a queue, the first."""\n', "opening"),
        ("csrc/base/a.cc", "\n\nint a;  // ranks who wait\n", "who"),
        ("tools/a.py", "\n\n# The rank tells its peer.\n", "speech"),
        ("docs/a.md", f"\n\n{LONG}.\n", "long"),
        ("docs/a.md", "\n\n- This has one: it is here; and here.\n", "marks"),
        ("docs/a.md", "\n\n| each cell is prose with a Seat | 1 |\n", "banned"),
        ("benchmarks/a.py", "\n\ndef f():  # it makes a roll call\n    pass\n", "banned"),
        ("csrc/base/a.h", "\n\nclass FreeSeat {};\n", "name"),
        ("csrc/base/a.h", "\n\nenum class NextTurn { kOne };\n", "name"),
    ],
)
def test_each_rule(tmp_path: Path, file: str, text: str, rule: str):
    status, output = check(tmp_path, GOOD | {file: text})
    assert (status, len(output)) == (1, 1), output
    assert output[0].startswith(f"{file}:3: {rule}: ")


def test_the_name_of_a_file(tmp_path: Path):
    status, [line] = check(tmp_path, GOOD | {"torch_ringdist/_seat.py": "\n"})
    assert status == 1
    assert line.startswith("torch_ringdist/_seat.py:1: name: ")
