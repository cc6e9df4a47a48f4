"""Checks that files that may be compiled as one do not define a name twice.

CI compiles several files of a test program, and of most modules of csrc, together (UNITY_BUILD in
CMakeLists.txt). Names in the unnamed namespaces of these files then meet. The grouping changes with
every new file, and builds with ccache compile each file alone. So a clash would first appear in CI,
possibly in an unrelated change.

Usage: `check_shared_names.py [ROOT]`. It prints `FILE: MESSAGE` per violation and exits with 1.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Modules of csrc that CMakeLists.txt compiles together.
BUILD = (ROOT / "CMakeLists.txt").read_text()
UNITED = re.findall(r'REGEX "/csrc/\(([a-z|]+)\)/"', BUILD)[0].split("|")

VARIABLE = re.compile(
    r"(?:constexpr|const|thread_local|std::atomic)\b.*?\b(\w+)(?:\[\w*\])?\s*[={;]"
)
TYPE = re.compile(r"(?:class|struct|enum class|enum)\s+(\w+)(?:\s+final)?\s*[:{]")
# Includes the types of parameters, which distinguish overloads.
FUNCTION = re.compile(
    r"(?!return|using|namespace|TEST|INSTANTIATE)[A-Za-z_][\w:<>,\*& ]*?[ &\*](\w+)\((.*)"
)


def groups(root: Path) -> dict[str, list[Path]]:
    """Returns the files that may be compiled together, by module or test program."""
    out = {
        f"tests/cpp/{folder.name}": sorted(folder.rglob("*.cc"))
        for folder in sorted((root / "tests/cpp").iterdir())
        if folder.is_dir()
    }
    out["csrc"] = [file for room in UNITED for file in sorted((root / "csrc" / room).rglob("*.cc"))]
    return out


def local_names(file: Path) -> Iterator[str]:
    """Yields the names that the file's unnamed namespaces define; relies on the layout of
    clang-format."""
    inside = False
    for line in file.read_text().splitlines():
        if line == "namespace {":
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and (match := VARIABLE.match(line) or TYPE.match(line)):
            yield match[1]
        elif inside and (match := FUNCTION.match(line)):
            types = [
                re.sub(r"\s*\w+( = .*)?$", "", one) for one in match[2].split(")")[0].split(", ")
            ]
            yield f"{match[1]}({', '.join(types)})"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    failed = False
    for files in groups(root).values():
        where: dict[str, list[Path]] = defaultdict(list)
        for file in files:
            for name in dict.fromkeys(local_names(file)):
                where[name].append(file.relative_to(root))
        for name, found in where.items():
            for file in found[1:]:
                failed = True
                print(
                    f"{file}: {name} is in {found[0]}, too: they may be compiled as one file. "
                    "Rename it, or share it"
                )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
