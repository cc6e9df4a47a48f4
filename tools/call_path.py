"""Print the functions of an allreduce, from ProcessGroupRing to the transport.

    tools/call_path.py [--build build/call_path]

Builds the native module without optimization, so that no function is inlined. Then two ranks run a
blocking allreduce of 8 bytes, one of them under gdb, which prints the stack where the message
enters the transport. Fails if there are more functions or files than MOST_FUNCTIONS and MOST_FILES.
Needs gdb and a build environment (tools/bootstrap.sh); the build takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_FUNCTIONS = 38
MOST_FILES = 30
FIRST = "ringdist::ProcessGroupRing::allreduce"

RANK = """
import importlib.util, os, signal, sys
import torch, torch.distributed as dist
module, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
spec = importlib.util.spec_from_file_location("torch_ringdist._C", module)
native = importlib.util.module_from_spec(spec)
sys.modules["torch_ringdist._C"] = native
spec.loader.exec_module(native)
import torch_ringdist
dist.init_process_group("ringdist", init_method="file://" + store, rank=rank, world_size=2)
data = torch.zeros(2)
for _ in range(3):
    dist.all_reduce(data)
if rank == 0:
    os.kill(os.getpid(), signal.SIGUSR2)  # gdb stops here, and sets its breakpoints
dist.all_reduce(data)
os._exit(0)
"""

# The first that is reached counts. The others may be reached from there.
BREAKPOINTS = [f"break ringdist::ShmTransport::{name}" for name in ("send", "commit")]


def build(folder: Path) -> Path:
    """Builds the native module in `folder` and returns its path."""
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    environment["PATH"] = f"{ROOT / '.venv/bin'}:{environment['PATH']}"
    configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"]
    configure += ["-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g1", "-DRINGDIST_DEVELOP=ON"]
    configure += [f"-DPython_EXECUTABLE={ROOT / '.venv/bin/python'}", "-DRINGDIST_UCX=wheel"]
    subprocess.run(configure, env=environment, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "_C"], env=environment, check=True)
    return next(folder.rglob("_C*.so"))


def stack(module: Path) -> str:
    """Runs both ranks and returns the stack of rank 0 as gdb prints it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "rank.py"
        script.write_text(RANK)
        arguments = [sys.executable, str(script), str(module), f"{folder}/store"]
        # It fails when gdb ends rank 0.
        other = subprocess.Popen([*arguments, "1"], stderr=subprocess.DEVNULL)
        commands = ["set pagination off", "set breakpoint pending on", "handle SIGUSR2 stop nopass"]
        commands += ["run", *BREAKPOINTS, "continue", "backtrace", "kill"]
        gdb = ["gdb", "-batch", "-nx", *(part for one in commands for part in ("-ex", one))]
        try:
            return subprocess.run(
                [*gdb, "--args", *arguments, "0"], capture_output=True, text=True, timeout=300
            ).stdout
        finally:
            other.kill()
            other.wait()


def functions(text: str) -> list[tuple[str, str]]:
    """Returns (function, file:line) of ringdist's frames up to FIRST, outermost first.

    A name stands without its arguments. std::function and the like are not counted.
    """
    frames = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(.+?) \(.*?at (\S+?):(\d+)$", text, re.M)
    out: list[tuple[str, str]] = []
    for name, path, line in frames:
        if "csrc/" in path:
            out.append((name, f"{path.split('csrc/')[1]}:{line}"))
        if name == FIRST:
            return out[::-1]
    raise SystemExit(f"{FIRST} is not on the stack:\n{text}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build/call_path", help="build folder")
    found = functions(stack(build(parser.parse_args().build)))
    for name, place in found:
        print(f"{place:45} {name}")
    names = {name for name, _ in found}
    files = {place.rsplit(":", 1)[0] for _, place in found}
    print(f"{len(names)} functions of {MOST_FUNCTIONS} at most, {len(files)} files of {MOST_FILES}")
    if len(names) > MOST_FUNCTIONS or len(files) > MOST_FILES:
        raise SystemExit("the path of a call has become too long")


if __name__ == "__main__":
    main()
