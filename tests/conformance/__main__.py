"""Run PyTorch's own DistributedTest suite with ringdist, and with gloo next to it.

    python -m tests.conformance                              both, at 2, 3 and 4 ranks
    python -m tests.conformance --quick                      40 tests at 2 ranks, as CI does
    python -m tests.conformance --only 'test_all_gather*' --world-size 2 --verbose
    python -m tests.conformance --list                       the tests, and which gates are opened

A run continues where an earlier run of the same commit stopped; gloo's results are kept per version
of torch. Ends with status 1 if ringdist fails a test that gloo passes, unless torch itself rejects
backends of other vendors (refused.txt). docs/reference/conformance.md explains the rule and the
lists.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tqdm import tqdm

from tests.conformance import lists, report, results
from tests.conformance.client import Result, Server

BACKENDS = ["gloo", "ringdist"]
# Seconds for tests that take longer than the others by design.
SLOW = {
    "test_ddp_uneven_inputs": 400,
    "test_ddp_compile*": 300,
    "test_DistributedDataParallel*": 300,
}


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--world-size", type=int, nargs="+", default=None, metavar="N", help="ranks (2 3 4)")
    add("--backend", nargs="+", default=BACKENDS, choices=BACKENDS)
    add("--only", nargs="+", default=[], metavar="PATTERN", help="tests, by name; * is anything")
    add("--quick", action="store_true", help="the tests of quick.txt, at 2 ranks")
    add("--list", action="store_true", help="only say what would run")
    add("--gates", choices=["lifted", "upstream"], default="lifted", help="upstream: as torch asks")
    add("--jobs", type=int, default=1, metavar="N", help="tests at a time")
    add("--seconds", type=float, default=120, help="time limit of a test (%(default)s)")
    add("--fresh", action="store_true", help="run again what an earlier run knows")
    add("--verbose", action="store_true", help="tracebacks and stacks of what fails")
    add("--out", type=Path, default=results.FOLDER, help="folder of results and logs")
    add("--suite", default="tests.conformance.suite", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.out = options.out.resolve()
    options.world_size = options.world_size or ([2] if options.quick else [2, 3, 4])
    if min(options.world_size) < 2:
        parser.error(f"--world-size: {min(options.world_size)}: expected 2 or more")
    if options.jobs < 1:
        parser.error(f"--jobs: {options.jobs}: expected 1 or more")
    return options


def choose(tests: list[str], options: argparse.Namespace) -> list[str]:
    """Returns the chosen tests in the suite's order. Raises ValueError for a pattern without a
    match."""
    patterns = [*options.only, *(lists.quick() if options.quick else [])]
    for pattern in patterns:
        if not fnmatch.filter(tests, pattern):
            raise ValueError(f"no test matches {pattern!r}")
    if not patterns:
        return tests
    return [test for test in tests if any(fnmatch.fnmatch(test, p) for p in patterns)]


def seconds_for(test: str, limit: float) -> float:
    return max([limit, *(slow for pattern, slow in SLOW.items() if fnmatch.fnmatch(test, pattern))])


class Runner:
    """The tests of one world size, on as many servers as jobs."""

    def __init__(self, options: argparse.Namespace, world_size: int):
        self._options = options
        self._world_size = world_size
        self._servers: SimpleQueue[Server] = SimpleQueue()
        # The jobs must not write to the same logs.
        self._all = [
            Server(
                options.suite, world_size, options.gates, options.out / f"logs-{world_size}-{job}"
            )
            for job in range(options.jobs)
        ]
        for server in self._all:
            self._servers.put(server)
        self.suite = self._all[0].suite
        self.tests = choose(self._all[0].tests, options)

    def run(self, backend: str, known: results.Results) -> dict[str, Result]:
        todo = [t for t in self.tests if self._options.fresh or not known.get(self._world_size, t)]
        bar = tqdm(total=len(todo), desc=f"{backend}, {self._world_size} ranks", unit="test")
        with bar, ThreadPoolExecutor(self._options.jobs) as pool:
            running = {pool.submit(self._one, backend, test): test for test in todo}
            for done in as_completed(running):
                test, result = running[done], done.result()
                known.add(self._world_size, test, result)
                bar.update()
                if result.outcome == "failed":
                    words = result.detail if self._options.verbose else result.reason
                    bar.write(f"{backend}, {self._world_size} ranks: {test}: {words}")
        return {test: known.get(self._world_size, test) for test in self.tests}

    def _one(self, backend: str, test: str) -> Result:
        server = self._servers.get()
        try:
            return server.run(backend, test, seconds_for(test, self._options.seconds))
        finally:
            self._servers.put(server)

    def close(self) -> None:
        for server in self._all:
            server.close()


def run_all(options: argparse.Namespace) -> dict[int, dict[str, dict[str, Result]]]:
    table: dict[int, dict[str, dict[str, Result]]] = {}
    for world_size in options.world_size:
        runner = Runner(options, world_size)
        try:
            if options.list:
                show(runner.tests, world_size)
                continue
            table[world_size] = {}
            for backend in options.backend:
                gates = results.gates_key(options.gates)
                tested = "" if backend == "gloo" else results.checkout_key()
                path = results.path_for(options.out, backend, runner.suite, gates, tested)
                table[world_size][backend] = runner.run(backend, results.Results(path))
        finally:
            runner.close()
    return table


def show(tests: list[str], world_size: int) -> None:
    opened = lists.lifted()
    print(f"{len(tests)} tests at {world_size} ranks")
    for test in tests:
        gates = lists.find(opened, test)
        print(f"  {test}" + (f"  (opened: {gates})" if gates else ""))


def main(words: list[str]) -> int:
    options = parse_arguments(words)
    try:
        table = run_all(options)
    except ValueError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if options.list:
        return 0
    documented, others = report.missing(table, lists.refused())
    sections = [report.skips(table), report.failures(table), report.counts(table)]
    print("\n" + "\n\n".join(section for section in sections if section))
    for title, entries in (("refused by torch", documented), ("MISSING", others)):
        if entries:
            print(f"\n{title}: gloo passes, ringdist does not")
            print("\n".join(f"  {entry}" for entry in entries))
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
