"""The table of rooms in docs/architecture.md is the law: a room imports only what its row allows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ptxbench
from ptxbench.evaluate.versions import JUDGING

ROOT = Path(ptxbench.__file__).parent

ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "native": {"core"},
    "stats": {"core"},
    "tasks": {"core"},
    "build": {"core", "native"},
    "record": {"core", "build", "native"},
    "simulator": {"core", "native"},
    "check": {"core", "simulator"},
    "devices": {"core", "tasks", "simulator", "native", "stats"},
    "judge": {"core", "stats", "tasks"},
    "store": {"core"},
    "evaluate": {"core", "tasks", "build", "record", "devices", "judge", "store", "native"},
    "solutions": {"core"},
    "report": {"core", "stats", "tasks", "store"},
    "prompts": {"core", "tasks"},
    "runners": {"core", "tasks", "prompts", "store"},
    "adapt": {"core", "stats", "tasks", "prompts", "solutions", "store"},
}
ROOT_OF_ALL = "cli"
"""The composition root: it knows every room, and no room knows it."""


def imports_of(path: Path) -> set[tuple[str, ...]]:
    """Dotted names of our own modules that a file imports, as tuples below ``ptxbench``."""
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"ptxbench.{alias.name}" for alias in node.names] if module == "ptxbench" else [module]
        else:
            continue
        found |= {tuple(name.split(".")[1:]) for name in names if name.startswith("ptxbench.")}
    return found


def test_every_room_is_in_the_table() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert rooms == {*ALLOWED, ROOT_OF_ALL}


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_room_imports_only_what_its_row_allows(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        for name in imports_of(path):
            other = name[0]
            if other in (room, "__version__"):
                continue
            assert other in ALLOWED[room], f"{path.relative_to(ROOT)} imports {'.'.join(name)}"
            assert len(name) == 1 or (ROOT / other / "__init__.py").exists()
            if other != "core":
                assert len(name) == 1, f"{path.relative_to(ROOT)} reaches into {'.'.join(name)}"


def test_a_verdict_depends_on_the_code_of_every_room_that_judging_uses() -> None:
    used, waiting = set[str](), {"evaluate"}
    while waiting:
        used |= waiting
        waiting = {other for room in waiting for other in ALLOWED[room]} - used
    assert {*used, "solutions/include"} == set(JUDGING)


def test_the_document_shows_the_same_table() -> None:
    text = (ROOT.parent.parent / "docs" / "architecture.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    documented = {
        row[1].strip().strip("`/"): {name.strip() for name in row[3].split(",") if name.strip() not in ("–", "")}
        for row in rows
    }
    assert documented == ALLOWED


def test_only_the_runners_know_inspect() -> None:
    knowing = {
        path.relative_to(ROOT).parts[0]
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "inspect_ai")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "inspect_ai" for alias in node.names))
    }
    assert knowing == {"runners"}


def test_import_is_light() -> None:
    code = (
        "import sys, ptxbench, ptxbench.core; "
        "heavy = {'torch', 'ray', 'numpy', 'cuda', 'inspect_ai'} & set(sys.modules); "
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_can_be_read_in_a_sitting() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in ROOT.rglob("*")
        if path.suffix in {".py", ".cpp", ".hpp", ".cuh"} and (count := len(path.read_text().splitlines())) > 450
    }
    assert long == {}
