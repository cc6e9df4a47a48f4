"""Print the slowest tests of a run: tools/slowest.py build/timings

Reads the JUnit XML that GoogleTest and pytest write. Times are wall-clock seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from xml.etree import ElementTree


def times(folder: Path) -> list[tuple[float, str]]:
    """Returns (seconds, name) of each test of each report in `folder`, slowest first."""
    found = []
    for report in folder.glob("*.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            found.append((float(case.get("time") or 0), name))
    return sorted(found, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with the XML reports")
    parser.add_argument("--count", type=int, default=10, help="tests to print (default: 10)")
    options = parser.parse_args()
    found = times(options.folder)
    total = sum(seconds for seconds, _ in found)
    print(f"the slowest of {len(found)} tests, which took {total:.0f} s if added up:")
    for seconds, name in found[: options.count]:
        print(f"  {seconds:7.1f} s  {name}")


if __name__ == "__main__":
    main()
