"""The shape of the code: import direction, sizes, and which modules may touch what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "omnigraph_spark"
MODULES = sorted(PACKAGE.rglob("*.py")) + sorted((ROOT / "pyspark_omnigraph").rglob("*.py"))

# INV-16: a module may import only from its own rank and from lower ranks.
RANK = {
    "errors": 0,
    "options": 1,
    "storage": 2,
    "manifest": 3,
    "schema": 4,
    "values": 4,
    "read": 5,
    "write": 6,
    "branches": 7,
    "maintenance": 7,
    "streaming": 7,
    "source": 8,
    "session": 9,
    "writing": 9,
    "upkeep": 9,
    "graph": 10,
    "reference": 11,
    "cli": 11,
    "__init__": 12,
}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _rank_name(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "omnigraph_spark":
        return None
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize("path", [p for p in MODULES if p.is_relative_to(PACKAGE)], ids=str)
def test_imports_point_one_way(path: Path) -> None:
    """INV-16: storage → manifest → schema → read / write → the rest; nothing imports upward."""
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    for module in _imports(path):
        other = _rank_name(module)
        if other is None:
            continue
        assert other in RANK, f"{relative} imports {module}, which has no rank"
        assert RANK[other] <= RANK[own], f"{relative} (rank {RANK[own]}) imports {module} (rank {RANK[other]})"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_modules_and_functions_stay_small(path: Path) -> None:
    """A module has at most 400 lines, a function at most 50 and at most 5 positional parameters."""
    text = path.read_text()
    assert text.count("\n") <= 400, f"{path} has {text.count(chr(10))} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            assert size <= 50, f"{path}:{node.lineno} {node.name} has {size} lines"
            positional = [a for a in node.args.args if a.arg not in ("self", "cls")]
            assert len(positional) <= 5, f"{path}:{node.lineno} {node.name} has {len(positional)} parameters"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_only_storage_calls_pylance_boto3_and_the_clock(path: Path) -> None:
    """Pylance is called in storage/lance_*.py only, boto3 in storage only, time and ids come from the seams."""
    relative = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text())
    in_lance = relative.startswith("omnigraph_spark/storage/lance_")
    in_storage = relative.startswith("omnigraph_spark/storage/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func).split(".")[0]
            assert owner != "lance" or in_lance, f"{relative}:{node.lineno} calls pylance"
            called = ast.unparse(node.func)
            banned = {
                "time.time",
                "time.sleep",
                "uuid.uuid4",
                "datetime.now",
                "random.random",
                "datetime.utcnow",
            }
            assert called not in banned, f"{relative}:{node.lineno} bypasses the seams with {called}"
    if not in_storage:
        assert not any(m.split(".")[0] in {"boto3", "botocore"} for m in _imports(path)), relative


@pytest.mark.parametrize("path", [p for p in MODULES if p.name == "__init__.py"], ids=str)
def test_init_files_hold_no_logic(path: Path) -> None:
    """``__init__.py`` imports and lists names; behaviour lives in named modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, (ast.FunctionDef, ast.ClassDef)), f"{path}:{node.lineno} defines {node.name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_broad_except_hides_a_failure(path: Path) -> None:
    """Broad handlers re-raise; anything else would hide an outcome."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            if caught in {"everything", "Exception", "BaseException"}:
                raised = any(isinstance(n, ast.Raise) for n in ast.walk(node))
                assert raised, f"{path}:{node.lineno} swallows {caught}"
