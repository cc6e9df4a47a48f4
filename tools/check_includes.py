"""Checks includes and imports, and that no file has more than 400 lines.

A module is a folder that the table in csrc/README.md names, possibly nested. A file belongs to the
longest module path that contains it. A header and its .cc count as one unit, and units must not
include each other in a cycle. Modules of torch_ringdist/ must not import each other in a cycle
when they are loaded. Names of std must be included in csrc/ and tests/cpp/ where they are
used.

The table has the rules for our own folders:

    | folder | may include |
    |---|---|
    | base   | std only    |
    | os     | base        |

The tests of a module (tests/cpp/<module>) may include that module, the modules that it may include,
and fakes of the others.

"all above" stands for every row before it, and a file name for that file; further columns are
ignored. In addition, a plug-in folder (csrc/transport/ucx) never includes another plug-in folder,
and some libraries belong to one folder.

Usage: `check_includes.py [ROOT]`. It prints `FILE:LINE: MESSAGE` per violation and exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path, PurePath
from typing import TypeVar

from std_headers import BROUGHT_BY, used_headers

MAX_LINES = 400
# Modules with tests that run whole groups of ranks.
TESTED_AS_A_WHOLE = {"engine", "compress", "negotiation"}
PLUG_INS = "transport"  # module with folders that never include each other
MEASURED_FOLDERS = ("csrc", "torch_ringdist", "tests", "benchmarks", "examples", "tools")
MEASURED_SUFFIXES = {".h", ".cc", ".cu", ".py", ".pyi", ".sh", ".cmake"}
CPP_SUFFIXES = {".h", ".cc", ".cu"}
ROOT = Path(__file__).resolve().parent.parent

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Libraries with headers that only some folders may include. The first pattern that matches an
# include decides.
LIBRARIES = [
    (
        "pybind11",
        re.compile(r"pybind11/|torch/csrc/utils/pybind\.h|torch/extension\.h"),
        ["bindings"],
    ),
    ("Python", re.compile(r"Python\.h$"), ["torch", "bindings"]),
    ("torch", re.compile(r"(torch|c10|ATen|caffe2)/"), ["torch", "bindings"]),
    ("UCX", re.compile(r"(ucp|uct|ucs|ucm)/"), ["transport/ucx"]),
    ("OpenSSL", re.compile(r"openssl/"), ["os/tls"]),
    ("CUDA or NCCL", re.compile(r"(cuda\w*|cub/.*|nccl)\.(h|cuh)$"), ["cuda"]),
]


def read_table(readme: Path) -> dict[str, set[str]]:
    """Returns, for each folder, the other folders that it may include."""
    table: dict[str, set[str]] = {}
    columns: tuple[int, int] | None = None
    for line in readme.read_text().splitlines():
        if not line.lstrip().startswith("|"):
            columns = None
            continue
        cells = [cell.strip().strip("`/") for cell in line.strip().strip("|").split("|")]
        names = [cell.lower() for cell in cells]
        if "folder" in names and "may include" in names:
            columns = names.index("folder"), names.index("may include")
        elif columns and max(columns) < len(cells) and not set(cells[0]) <= set("-: "):
            folder, allowed = cells[columns[0]], cells[columns[1]]
            words = {word.strip().strip("`/") for word in allowed.split(",")} - {"", "std only"}
            if "all above" in words:
                words = (words - {"all above"}) | set(table)
            table[folder] = words
    return table


@cache
def includes_of(file: Path) -> list[tuple[int, bool, str]]:
    """Returns (line number, in quotes, path) of each #include."""
    lines = enumerate(file.read_text().splitlines(), start=1)
    matches = ((number, INCLUDE.match(line)) for number, line in lines)
    return [(number, m.group(1) == '"', m.group(2)) for number, m in matches if m]


def room_of(path: PurePath, table: dict[str, set[str]]) -> str | None:
    """Returns the module of a file, given its path below csrc/."""
    fitting = (parent.as_posix() for parent in path.parents)  # the longest first
    return next((folder for folder in fitting if folder in table), None)


def check_ours(csrc: Path, file: Path, path: str, table: dict[str, set[str]]) -> str | None:
    """Returns the problem with `#include "path"` in that file, or None."""
    if not (csrc / path).is_file():
        return f'"{path}" is not a file of csrc/; ours are included by their path from there'
    source, target = file.relative_to(csrc), PurePath(path)
    room, other = room_of(source, table), room_of(target, table)
    if room != other:
        allowed = table.get(room or "", set())
        if other not in allowed and path not in allowed:
            words = ", ".join(sorted(allowed)) or "nothing of ours"
            return f'"{path}": {room}/ may include {words} (csrc/README.md)'
    folders = source.parts[1:-1], target.parts[1:-1]
    if room == PLUG_INS and all(folders) and folders[0] != folders[1]:
        return f'"{path}": a plug-in folder never includes its sibling'
    return None


def check_library(csrc: Path, file: Path, path: str) -> str | None:
    """Returns the problem with `#include <path>` in that file, or None."""
    folder = file.relative_to(csrc).parent.as_posix()
    for name, pattern, homes in LIBRARIES:
        if pattern.match(path):
            if any(folder == home or folder.startswith(home + "/") for home in homes):
                return None
            return f"<{path}>: {name} belongs to csrc/{' and csrc/'.join(homes)}"
    return None


# Yields the violations of the table in csrc/.
def check_includes(root: Path) -> Iterator[str]:
    csrc = root / "csrc"
    readme = csrc / "README.md"
    table = read_table(readme) if readme.is_file() else {}
    if not table:
        yield f"{readme.relative_to(root)}:1: no table '| folder | may include |'"
        return
    strangers: set[str] = set()
    for file in sorted(p for p in csrc.rglob("*") if p.suffix in CPP_SUFFIXES):
        where = file.relative_to(root)
        folder = file.relative_to(csrc).parts[0]
        if not room_of(file.relative_to(csrc), table) and folder not in strangers:
            strangers.add(folder)
            yield f"{where}:1: folder {folder}/ is not in the table of csrc/README.md"
        for number, quoted, path in includes_of(file):
            # A library's header counts as such even in quotes.
            ours = quoted and ((csrc / path).is_file() or check_library(csrc, file, path) is None)
            check = check_ours(csrc, file, path, table) if ours else check_library(csrc, file, path)
            if check:
                yield f"{where}:{number}: {check}"


def check_tests(root: Path) -> Iterator[str]:
    """Yields tests of a module that include a module which they may not."""
    csrc, tests = root / "csrc", root / "tests" / "cpp"
    table = read_table(csrc / "README.md")

    def ours(file: Path) -> set[Path]:
        return {tests / path for _, _, path in includes_of(file) if (tests / path).is_file()}

    for test in sorted(p for p in tests.rglob("*") if p.suffix in CPP_SUFFIXES):
        room = room_of(test.relative_to(tests), table)
        if room is None or room in TESTED_AS_A_WHOLE:
            continue
        for file in {test} | reached_from(test, ours):
            for number, _, path in includes_of(file):
                other = room_of(PurePath(path), table) if (csrc / path).is_file() else None
                if other not in {None, room} | table[room] and path not in table[room]:
                    yield (
                        f'{test.relative_to(root)}:1: by {file.name}:{number} "{path}", which '
                        f"{room}/ may not include: its tests fake that"
                    )


Node = TypeVar("Node")


def reached_from(start: Node, successors: Callable[[Node], set[Node]]) -> set[Node]:
    """Returns the nodes that can be reached by one step or more."""
    seen: set[Node] = set()
    ahead = [start]
    while ahead:
        new = successors(ahead.pop()) - seen
        seen |= new
        ahead += new
    return seen


def find_circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Returns the sets of nodes that reach each other."""
    reached = {name: reached_from(name, graph.__getitem__) for name in graph}
    circles: list[set[str]] = []
    for name in sorted(graph):
        circle = {other for other in reached[name] if name in reached[other]}
        if len(circle) > 1 and circle not in circles:
            circles.append(circle)
    return circles


# Yields cycles of includes in csrc/.
def check_circles(root: Path) -> Iterator[str]:
    csrc = root / "csrc"
    graph: dict[str, set[str]] = {}
    for file in (p for p in csrc.rglob("*") if p.suffix in CPP_SUFFIXES):
        name = file.relative_to(csrc).with_suffix("").as_posix()
        included = graph.setdefault(name, set())
        for _, quoted, path in includes_of(file):
            if quoted and (csrc / path).is_file():
                included.add(PurePath(path).with_suffix("").as_posix())
        included.discard(name)
    for circle in find_circles(graph):
        yield f"csrc/{min(circle)}:1: includes itself by way of {', '.join(sorted(circle))}"


def imports_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yields the modules that are imported when a module is loaded, and names in them."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{one.name}" for one in node.names))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports_of(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports_of(ast.iter_child_nodes(node))


# Yields cycles of imports in torch_ringdist/. A package is imported by each of its modules, so it
# does not count.
def check_imports(root: Path) -> Iterator[str]:
    files = {
        ".".join(file.relative_to(root).with_suffix("").parts): file
        for file in (root / "torch_ringdist").rglob("*.py")
    }
    graph = {
        name: files.keys() & set(imports_of([ast.parse(file.read_text())])) - {name}
        for name, file in files.items()
    }
    for circle in find_circles(graph):
        path = files[min(circle)].relative_to(root)
        yield f"{path}:1: imports itself by way of {', '.join(sorted(circle))}"


def headers_of(file: Path, folders: tuple[Path, ...]) -> set[str]:
    """Returns the headers from outside that the file includes, directly or through our headers."""

    def ours(one: Path) -> set[Path]:
        paths = (
            folder / path for _, quoted, path in includes_of(one) if quoted for folder in folders
        )
        return {path for path in paths if path.is_file()}

    read = {file} | reached_from(file, ours)
    return {path for one in read for _, quoted, path in includes_of(one) if not quoted}


# Yields names of std that are used without their header.
def check_std(root: Path) -> Iterator[str]:
    folders = root / "csrc", root / "tests" / "cpp"
    for folder in folders:
        for file in sorted(p for p in folder.rglob("*") if p.suffix in CPP_SUFFIXES):
            included = headers_of(file, folders)
            for header, (number, name) in used_headers(file.read_text()).items():
                if not included & ({header} | BROUGHT_BY.get(header, set())):
                    yield f"{file.relative_to(root)}:{number}: {name} without #include <{header}>"


# Yields files with too many lines.
def check_lengths(root: Path) -> Iterator[str]:
    for folder in MEASURED_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in MEASURED_SUFFIXES and file.is_file():
                lines = file.read_text().count("\n")
                if lines > MAX_LINES:
                    yield f"{file.relative_to(root)}:{lines}: more than {MAX_LINES} lines; split it"


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else ROOT
    violations = [
        *check_includes(root),
        *check_circles(root),
        *check_imports(root),
        *check_tests(root),
        *check_std(root),
        *check_lengths(root),
    ]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
