"""The public surface: exported names, errors that pickle, options that match their page."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import omnigraph_spark
from omnigraph_spark import errors
from omnigraph_spark.errors import OmnigraphError, Outcome, Violation, error_classes, from_text
from omnigraph_spark.reference import PAGES

ROOT = Path(__file__).parents[2]


def test_exported_names_are_exactly_all() -> None:
    """``__all__`` is sorted and lists every public name, so the surface cannot drift unseen."""
    listed = omnigraph_spark.__all__
    assert listed == sorted(listed)
    modules = {
        "cli",
        "errors",
        "graph",
        "manifest",
        "options",
        "read",
        "reference",
        "schema",
        "session",
        "source",
    }
    modules |= {"storage", "upkeep", "values", "write", "writing", "branches", "maintenance", "streaming"}
    public = {n for n in vars(omnigraph_spark) if not n.startswith("_")} - modules
    assert public == set(listed)


def _example(cls: type[OmnigraphError]) -> OmnigraphError:
    return cls("Something happened to Person 'ada'")


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda c: c.__name__)
def test_every_error_answers_three_questions_and_pickles(cls: type[OmnigraphError]) -> None:
    """Each error has a code, retryable, outcome and hint, survives pickle, and is restored from its own text."""
    error = _example(cls)
    assert error.code.startswith("OG-")
    assert isinstance(error.retryable, bool)
    assert isinstance(error.outcome, Outcome)
    assert error.hint
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert copy.__dict__ == error.__dict__
    restored = from_text(f"org.apache.spark.SparkException: x\n{type(error).__name__}: {error}\n\tat y")
    assert type(restored) is cls
    assert restored is not None
    assert (restored.hint, restored.outcome) == (error.hint, error.outcome)


def test_error_codes_are_unique() -> None:
    """A code names one class."""
    codes = [c.code for c in error_classes()]
    assert len(codes) == len(set(codes))


def test_violations_pickle_with_their_error() -> None:
    """What a task found reaches the driver whole."""
    violation = Violation(rule="range", type_name="Person", property="age", row_id="ada", message="age 300 > 200")
    copy = pickle.loads(pickle.dumps(errors.ValidationError("1 row is invalid", violations=[violation])))
    assert copy.violations == [violation]
    assert "age 300 > 200" in str(copy)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_current(name: str) -> None:
    """Pages generated from code equal what the code generates now (`make docs`)."""
    assert (ROOT / "docs" / name).read_text() == PAGES[name]()
