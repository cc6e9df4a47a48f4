"""Does torchft work over ringdist, with this checkout's build and torch?

    python tools/check_torchft.py                                    0.2.0, then the nightly
    python tools/check_torchft.py --packages torchft==0.2.0

For each package: installs it, and what it needs but torch, into a folder beside the environment,
and runs tests/python/test_torchft.py with it. The status is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["torchft==0.2.0", "torchft-nightly==2026.10.26"]
# Of what torchft imports, all but torch; these bring the rest.
NEEDED = ["opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk", "requests"]
TEST = "tests/python/test_torchft.py"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--packages", nargs="+", default=PACKAGES, metavar="NAME==VERSION")
    add("--folder", type=Path, default=ROOT / "build" / "torchft", help="default: %(default)s")
    return parser.parse_args()


def install(folder: Path, *packages: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(folder), *packages], check=True)


def check(package: str, folder: Path) -> bool:
    if not folder.exists():
        install(folder, "--no-deps", package)
        install(folder, "--upgrade", *NEEDED)
    print(f"---- {package}", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    test = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", TEST], cwd=ROOT, env=environment, check=False
    )
    return test.returncode == 0


def main() -> int:
    args = parse_arguments()
    good = [check(name, args.folder.resolve() / name) for name in args.packages]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
