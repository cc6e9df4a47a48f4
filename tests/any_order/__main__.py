"""Calls by name (torch_ringdist.horovod) in any order, from any thread, with exact results.

    python -m tests.any_order                            seeds 0 to 999
    python -m tests.any_order --first 370 --seeds 10     ten of them; from 370 on, as a run that was
                                                         interrupted goes on

For each seed, 4 ranks make 200 calls of all kinds, dtypes and process sets. Each rank uses three
threads and its own order, and makes a quarter of the calls twice. In one call of twenty, a rank
calls something else, and all ranks must get an error. Seeds run in blocks of ten, with different
cache and batch sizes, on ranks that live until one fails. Ends with status 1 if any failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from support.pool import Pool  # noqa: E402
from tqdm import tqdm  # noqa: E402

from tests.any_order.execute import BLOCK, run  # noqa: E402
from tests.any_order.plan import WORLD  # noqa: E402

LIMIT = 120.0  # seconds per block


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.any_order",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=int, default=1000, metavar="N", help="how many (default: %(default)s)")
    add("--first", type=int, default=0, metavar="SEED", help="which is first (default: 0)")
    options = parser.parse_args(words)
    if options.seeds < 1 or options.first < 0:
        parser.error("--seeds must be 1 or more, --first 0 or more")
    return options


def blocks(first: int, count: int) -> list[tuple[int, int]]:
    """Returns the first seed and the number of seeds per block. Blocks begin at multiples of
    BLOCK, except for the first."""
    out, end = [], first + count
    while first < end:
        size = min(BLOCK - first % BLOCK, end - first)
        out.append((first, size))
        first += size
    return out


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    pool, failed = Pool(WORLD), []
    bar = tqdm(total=options.seeds, desc="seeds", unit="seed")
    try:
        for first, count in blocks(options.first, options.seeds):
            try:
                pool.run(run, first, count, timeout=LIMIT)
            except AssertionError as error:
                failed.append((first, count))
                bar.write(
                    f"{error}\n\nagain: python -m tests.any_order --first {first} --seeds {count}"
                )
                pool = Pool(WORLD)
            bar.update(count)
    except KeyboardInterrupt:
        left = options.seeds - bar.n
        bar.write(
            f"to go on: python -m tests.any_order --first {options.first + bar.n} --seeds {left}"
        )
    finally:
        bar.close()
        pool.close()
    seeds = f"seeds {options.first} to {options.first + bar.n - 1}"
    print(
        f"{seeds}: {f'failed from {[first for first, _ in failed]} on' if failed else 'all passed'}"
    )
    return 1 if failed or bar.n < options.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
