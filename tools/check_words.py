"""Checks comments, docstrings and docs against docs/style.md and docs/reference/glossary.md.

It has these rules:

  opening   a comment block or docstring begins with What, Of, As, Whether, Who, Those, That, Which
  who       who, whom, whose: these are for people
  speech    say, tell, hear, know, owe, ask: so are these
  long      a sentence has more than 30 words
  marks     a sentence has more than one colon or semicolon
  banned    a word of the last column of the glossary; those in parentheses are banned in names only
  name      a C++ type, a file or a folder of the product is named with a banned word

Usage: `check_words.py [ROOT]`. It prints `FILE:LINE: RULE: TEXT` per hit, and then exits with 1. It
reads the files that git lists, so add new files first.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = Path("docs/reference/glossary.md")
PRODUCT = ("csrc/", "torch_ringdist/")
FOLDERS = (*PRODUCT, "tests/", "benchmarks/", "examples/", "tools/", "docs/", "cmake/")
# The changelog is history. The glossary and the style guide quote forbidden words.
EXEMPT = {"CHANGELOG.md", GLOSSARY.as_posix(), "docs/style.md"}
CPP = {".h", ".cc", ".cu"}
PYTHON = {".py", ".pyi"}
MOST_WORDS = 30

OPENING = re.compile(r"^(What|Of|As|Whether|Who|Whom|Those|That|Which)\b(?!'s\b)", re.IGNORECASE)
WHO = re.compile(r"\b(who|whom|whose|whoever|whomever)\b", re.IGNORECASE)
SPEECH = re.compile(
    r"\b(say|says|said|saying|tell|tells|told|telling|hear|hears|heard|know|knows|knew|known"
    r"|owe|owes|owed|ask|asks|asked|asking)\b",
    re.IGNORECASE,
)
# People and texts. If one of them precedes a verb of SPEECH closely, the verb is allowed.
SPEAKER = re.compile(
    r"\b(you|we|i|users?|people|person|readers?|authors?|developer|operator|human|engineer"
    r"|docs?|document\w*|papers?|comment|spec|standard|section|table|manual|README)\b[^.;:]{0,24}$",
    re.IGNORECASE,
)
IDIOM = re.compile(r"\b(known as|well[- ]known|(is|are) not known|not yet known)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][\w'-]*")
CODE = re.compile(
    r"`[^`]*`|\"[^\"]*\"|\b\w+::\w[\w:]*|\b\w+\([^)]*\)|https?://\S+"
    r"|\b[\w/.-]+\.(?:h|cc|py|md|cu)\b"
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])")
MARK = re.compile(r"[;:](?=\s|$)")
NO_PROSE = ("namespace", "clang-format", "NOLINT", "type:", "noqa")
CPP_TYPE = re.compile(
    r"^[ \t]*(?:class|struct|enum class|enum|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)\b(?![^\n{;]*;)",
    re.MULTILINE,
)
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
ITEM_NAME = re.compile(r"^\s*[\w.*\[\], ]+: ")
CPP_COMMENT = re.compile(r"(?<![:\"'/])//+\s?(.*)$")


class Block(NamedTuple):
    """A paragraph of prose, and the line where it begins."""

    line: int
    text: str
    in_docs: bool = False


class Hit(NamedTuple):
    line: int
    rule: str
    text: str


class Banned(NamedTuple):
    """Words that the glossary forbids."""

    in_prose: set[str]
    in_names: set[str]


def read_banned(root: Path) -> Banned:
    in_prose: set[str] = set()
    in_names: set[str] = set()
    glossary = root / GLOSSARY
    for line in glossary.read_text().splitlines() if glossary.is_file() else ():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4 or cells[0] in ("term", "---"):
            continue
        for word in filter(None, (word.strip().lower() for word in cells[3].split(","))):
            in_names.add(word.strip("()"))
            if not word.startswith("("):
                in_prose.add(word)
    return Banned(in_prose, in_names)


def _joined(lines: Iterator[tuple[int, str, bool]]) -> Iterator[Block]:
    """Joins (line, words, alone) of comments. One that follows code on its line stands for itself,
    and an empty one ends a paragraph."""
    start, last, words = 0, 0, list[str]()
    for number, text, alone in lines:
        if words and (number != last + 1 or not alone or not text):
            yield Block(start, " ".join(words))
            words = []
        if not alone:
            yield Block(number, text)
        elif text:
            start = start if words else number
            words.append(text)
        last = number
    if words:
        yield Block(start, " ".join(words))


def cpp_blocks(text: str) -> Iterator[Block]:
    def comments() -> Iterator[tuple[int, str, bool]]:
        for number, line in enumerate(text.split("\n"), 1):
            comment = CPP_COMMENT.search(line)
            if comment and line[: comment.start()].count('"') % 2 == 0:
                alone = not line[: comment.start()].strip()
                yield number, comment.group(1).strip(), alone

    yield from _joined(comments())
    for comment in re.finditer(r"/\*+(.*?)\*/", text, re.DOTALL):
        words = " ".join(line.strip(" *\t") for line in comment.group(1).split("\n"))
        yield Block(text.count("\n", 0, comment.start()) + 1, words.strip())


def python_blocks(text: str) -> Iterator[Block]:
    def comments() -> Iterator[tuple[int, str, bool]]:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                words = token.string.lstrip("#! ").strip()
                yield token.start[0], words, token.line.strip().startswith("#")

    yield from _joined(comments())
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        line = node.body[0].lineno if node.body else 0
        for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
            if not paragraph.startswith((" ", ">>>")):
                for text in _docstring_texts(paragraph):
                    yield Block(line, text)
            line += paragraph.count("\n") + 2


def _docstring_texts(paragraph: str) -> Iterator[str]:
    """Yields the paragraph, or the items of a section such as "Args:" without their names."""
    lines = paragraph.split("\n")
    if not SECTION.fullmatch(lines[0]):
        yield " ".join(paragraph.split())
        return
    indent = min(len(line) - len(line.lstrip()) for line in lines[1:]) if len(lines) > 1 else 0
    items: list[str] = []
    for line in lines[1:]:
        if not items or (len(line) - len(line.lstrip()) == indent and ITEM_NAME.match(line)):
            items.append(ITEM_NAME.sub("", line).strip())
        else:
            items[-1] += " " + line.strip()
    yield from items


def markdown_blocks(text: str) -> Iterator[Block]:
    """Yields paragraphs, list items and table cells; no code."""
    start, words, fenced = 0, list[str](), False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = line.strip()
        item = re.match(r"\s*(?:[-*+]|\d+\.)\s+(.*)", line)
        is_fence, is_row = bare.startswith("```"), bare.startswith("|")
        if words and (is_fence or is_row or item or not bare or line.startswith("#")):
            yield Block(start, " ".join(words), in_docs=True)
            words = []
        fenced = fenced != is_fence
        if fenced or is_fence or line.startswith("#") or not bare:
            continue
        if is_row:
            for cell in bare.strip("|").split("|"):
                if len(WORD.findall(cell)) >= 4:
                    yield Block(number, cell.strip(), in_docs=True)
        elif words or item or not line.startswith("    "):
            start = start if words else number
            words.append(item.group(1) if item else bare)


def blocks_of(path: Path, text: str) -> Iterator[Block]:
    if path.suffix in CPP:
        blocks = cpp_blocks(text)
    elif path.suffix in PYTHON:
        blocks = python_blocks(text)
    else:
        blocks = markdown_blocks(text)
    for block in blocks:
        if len(WORD.findall(block.text)) >= 3 and not block.text.startswith(NO_PROSE):
            yield block


def sentence_hits(block: Block, plain: str) -> Iterator[Hit]:
    for sentence in SENTENCE_END.split(plain):
        length, marks = len(WORD.findall(sentence)), len(MARK.findall(sentence))
        if length > MOST_WORDS:
            yield Hit(block.line, "long", f"{length} words: {sentence[:60]}")
        if marks > 1:
            yield Hit(block.line, "marks", f"{marks} of ; and : in: {sentence[:60]}")


def prose_hits(block: Block, plain: str, banned: re.Pattern[str] | None) -> Iterator[Hit]:
    """`plain` is the block's text without code and quotations."""

    def around(found: re.Match[str]) -> str:
        return plain[max(0, found.start() - 25) : found.end() + 25]

    if not block.in_docs and OPENING.match(block.text):
        yield Hit(block.line, "opening", block.text[:70])
    for found in WHO.finditer(plain):
        yield Hit(block.line, "who", around(found))
    for found in SPEECH.finditer(plain):
        idiom = IDIOM.search(plain[max(0, found.start() - 12) : found.end() + 4])
        if not idiom and not SPEAKER.search(plain[max(0, found.start() - 40) : found.start()]):
            yield Hit(block.line, "speech", around(found))
    for found in banned.finditer(plain) if banned else ():
        yield Hit(block.line, "banned", f"{found[0]!r} in: {around(found)}")
    yield from sentence_hits(block, plain)


def name_hits(path: str, text: str, banned: set[str]) -> Iterator[Hit]:
    for word in sorted(banned & set(re.split(r"[/_.]", path.lower()))):
        yield Hit(1, "name", f"{path} is named with {word!r}")
    for defined in CPP_TYPE.finditer(text) if Path(path).suffix in CPP else ():
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", defined[1])
        for word in sorted(banned & {word.lower() for word in words}):
            line = text.count("\n", 0, defined.start()) + 1
            yield Hit(line, "name", f"{defined[1]} is named with {word!r}")


def files_of(root: Path) -> list[str]:
    """The files of the repository at `root`, or all files in it if it is none."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False
    )
    names = listed.stdout.splitlines()
    if listed.returncode != 0 or not names:
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
    return [
        name
        for name in sorted(names)
        if Path(name).suffix in CPP | PYTHON | {".md"}
        and ("/" not in name or name.startswith(FOLDERS))
        and name not in EXEMPT
        and (root / name).is_file()
    ]


class Checked(NamedTuple):
    hits: dict[str, list[Hit]]  # by file
    counts: dict[str, Counter[str]]  # words, sentences, blocks and hits by part of the tree


def check(root: Path, only: str) -> Checked:
    """Reads the files that begin with `only`."""
    banned = read_banned(root)
    words = "|".join(map(re.escape, sorted(banned.in_prose)))
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE) if words else None
    checked = Checked({}, {})
    for name in (name for name in files_of(root) if name.startswith(only)):
        text = (root / name).read_text()
        part = "docs" if name.endswith(".md") else name.split("/")[0]
        count = checked.counts.setdefault(part, Counter())
        hits: list[Hit] = []
        for block in blocks_of(Path(name), text):
            plain = CODE.sub(" X ", block.text)
            count["blocks"] += 1
            count["words"] += len(WORD.findall(plain))
            count["sentences"] += len(SENTENCE_END.split(plain))
            count["all marks"] += len(MARK.findall(plain))
            hits += prose_hits(block, plain, pattern)
        if name.startswith(PRODUCT):
            hits += name_hits(name, text, banned.in_names)
        count.update(hit.rule for hit in hits)
        if hits:
            checked.hits[name] = hits
    return checked


def print_table(counts: dict[str, Counter[str]]) -> None:
    whole: Counter[str] = Counter()
    for count in counts.values():
        whole.update(count)
    print(
        f"{'':15}{'words':>8}{'opening %':>10}{'who ‰':>7}{'speech ‰':>9}{'long %':>8}"
        f"{'; : each':>9}{'banned':>8}{'names':>7}"
    )
    for part, count in [*counts.items(), ("all", whole)]:
        words, sentences = max(1, count["words"]), max(1, count["sentences"])
        print(
            f"{part:15}{count['words']:8}{100 * count['opening'] / max(1, count['blocks']):10.1f}"
            f"{1000 * count['who'] / words:7.1f}{1000 * count['speech'] / words:9.1f}"
            f"{100 * count['long'] / sentences:8.1f}{count['all marks'] / sentences:9.2f}"
            f"{count['banned']:8}{count['name']:7}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("root", nargs="?", type=Path, default=ROOT)
    add("--table", action="store_true", help="print how often each rule is broken")
    add("--list", metavar="RULE", help="print the hits of this rule only")
    add("--only", metavar="PATH", default="", help="read only files that begin so")
    args = parser.parse_args()
    checked = check(args.root.resolve(), args.only)
    if args.table:
        print_table(checked.counts)
    for name, hits in checked.hits.items():
        for hit in hits:
            if args.list in (None, hit.rule):
                print(f"{name}:{hit.line}: {hit.rule}: {hit.text}")
    return 1 if checked.hits else 0


if __name__ == "__main__":
    sys.exit(main())
