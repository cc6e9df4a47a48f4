"""Prints the places of torch and UCX in this Python environment, as one CMake command per line.

It imports neither, because torch takes seconds, and an import could load the package that is being
built.
"""

import importlib.metadata
import importlib.util
import re
from pathlib import Path


def folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def probe() -> dict[str, str]:
    found: dict[str, str] = {}
    if torch := folder_of("torch"):
        found["TORCH_DIR"] = str(torch)
        text = (torch / "version.py").read_text()
        match = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
        found["TORCH_VERSION"] = match.group(1) if match else "unknown"
    if libucx := folder_of("libucx"):
        found["WHEEL_DIR"] = str(libucx)
        names = [name for name in ("libucx-cu13", "libucx-cu12") if is_installed(name)]
        found["WHEEL_NAME"] = names[0] if names else "libucx"
    return found


if __name__ == "__main__":
    for key, value in probe().items():
        print(f'set(RINGDIST_PROBED_{key} "{value}")')
