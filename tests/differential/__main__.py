"""Random sequences of operations over ringdist, compared with exact arithmetic.

    python -m tests.differential                          1000 sequences, another seed each time
    python -m tests.differential --sequences 100 --seed 7 those of seed 7
    python -m tests.differential --replay FILE            one that failed, as the run saved it

Each sequence mixes operations, dtypes, shapes, layouts, groups of the 3 ranks, blocking and
asynchronous calls, sends and receives, and regions. A sequence that fails runs again alone in fresh
processes. If it fails again, it is minimized, printed and saved. Ends with status 1 if any failed.
docs/how-to/test-a-change.md has more details.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import hypothesis  # noqa: E402
from tqdm import tqdm  # noqa: E402

from tests.differential.plan import Plan  # noqa: E402
from tests.differential.runner import LIMIT, Checker, Mismatch, Ranks  # noqa: E402
from tests.differential.strategies import plans  # noqa: E402

FOLDER = ROOT / "build" / "differential"


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--sequences", type=int, default=1000, metavar="N", help="how many (default: %(default)s)")
    add("--seed", type=int, help="which (default: a new one, which is printed)")
    add("--seconds", type=float, default=LIMIT, help="limit of a sequence (default: %(default)s)")
    add("--device", default="cpu", help="of all tensors, such as cuda (default: %(default)s)")
    add("--no-tags", action="store_true", help="none but 0 for sends, as NCCL has no others")
    add("--replay", type=Path, metavar="FILE", help="run this sequence only")
    add("--out", type=Path, default=FOLDER, help="where failures are saved (default: %(default)s)")
    options = parser.parse_args(words)
    if options.sequences < 1:
        parser.error(f"--sequences: {options.sequences}: expected 1 or more")
    if options.seed is None:
        options.seed = random.randrange(1 << 30)
    return options


def search(
    checker: Checker, sequences: int, seed: int, device: str = "cpu", tags: bool = True
) -> tuple[Plan, str] | None:
    """Returns the smallest sequence that fails alone and its problem, or None. Stops at the
    first one."""
    failed: list[tuple[Plan, str]] = []
    bar = tqdm(total=sequences, desc="sequences", unit="sequence")

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=sequences,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(plans(device, tags))
    def run(plan: Plan) -> None:
        try:
            checker.check(plan)
        except Mismatch as error:
            if not failed:
                bar.write(f"failed, and is made smaller now:\n{plan}\n\n{error}\n")
            failed.append((plan, str(error)))
            bar.set_description("making it smaller")
            raise
        if not failed:
            bar.update()

    with bar:
        try:
            run()
        except (Mismatch, hypothesis.errors.Flaky):
            # Flaky: it failed twice and then passed. The smallest sequence that failed is the best
            # one.
            return shortest(checker, *failed[-1])
    return None


def shortest(checker: Checker, plan: Plan, problem: str) -> tuple[Plan, str]:
    """Removes steps that `plan` does not need to fail. hypothesis leaves some, because it seldom
    deletes as many choices at once as a step has."""
    for candidate in plan.shorter():
        try:
            checker.check(candidate)
        except Mismatch as error:
            return shortest(checker, candidate, str(error))
    return plan, problem


def report(plan: Plan, problem: str, verdict: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(plan.to_json() + "\n")
    print(f"\n{verdict}:\n{plan}\n\n{problem}\n")
    print(f"run it again: python -m tests.differential --replay {file}")


def replay(file: Path, seconds: float) -> int:
    ranks = Ranks(seconds)
    try:
        problem = ranks.run(Plan.from_json(file.read_text()))
    finally:
        ranks.close()
    print(problem or "passed")
    return 1 if problem else 0


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    if options.replay:
        return replay(options.replay, options.seconds)
    print(f"seed {options.seed}", flush=True)
    checker = Checker(lambda: Ranks(options.seconds))
    try:
        tags = not options.no_tags
        found = search(checker, options.sequences, options.seed, options.device, tags)
    finally:
        checker.close()
    for i, (plan, problem) in enumerate(checker.unrepeated):
        file = options.out / f"{options.seed}-once-{i}.json"
        report(plan, problem, "this failed among others, but not alone", file)
    if found:
        report(*found, "this fails, also alone", options.out / f"{options.seed}.json")
    bad = len(checker.unrepeated) + bool(found)
    print(f"seed {options.seed}: {bad or 'no'} sequence{'s' if bad != 1 else ''} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
