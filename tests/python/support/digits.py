"""Runs of examples/elastic_digits.py, and checks of them."""

from __future__ import annotations

from pathlib import Path

from support.launched import Course, Launched, committed, digits, read

EPOCHS, SHORT = 20, 5


def script_of(folder: Path, *more: str, epochs: int = SHORT) -> list[str]:
    usual = [f"--log={folder / 'steps'}", f"--epochs={epochs}", "--pause=0.05"]
    return [*digits.SCRIPT, *usual, *more]


def course_of(folder: Path, losses: list[float], epochs: int = SHORT) -> Course:
    """Returns the training and checks that it has no problems."""
    course = Course(read(folder / "steps"))
    course.check_epochs(digits.IMAGES, epochs)
    course.check_losses(losses[: epochs * digits.STEPS_OF_EPOCH], digits.TOLERANCE)
    assert not course.problems, "\n".join(course.problems)
    return course


def last_size(folder: Path) -> int:
    """Returns the size of the newest generation that committed a step, or 0 before the first. A
    rank that was stopped may write its earlier steps late."""
    newest = max(committed(folder / "steps"), key=lambda one: one.generation, default=None)
    return newest.size if newest else 0


def trained(job: Launched, folder: Path, size: int) -> dict[int, int]:
    """Waits until `size` ranks have trained a step together. Returns their process ids by rank."""
    job.wait_for(lambda: last_size(folder) == size)
    return job.members()
