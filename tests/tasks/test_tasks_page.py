"""docs/tasks.md shows the rows that exist, and its example is one of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ptxbench.core import Task
from ptxbench.tasks import load_tasks

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
ROWS = Path(__file__).parents[2] / "src" / "ptxbench" / "tasks" / "rows"


def table_row(task: Task) -> str:
    core = " ".join(f"{name}={value}" for name, value in task.of_tier("core")[0].sizes.items())
    rules = " ".join(f"{name}×{multiple}" for name, multiple in task.size_rules.items()) or "any"
    return f"| `{task.name}` | {task.suite} | {task.title} | {core} | {rules} |"


def table() -> str:
    suites = ("core", "extended", "training")
    return "\n".join(table_row(task) for suite in suites for task in load_tasks(suite).values())


def test_the_page_lists_every_row() -> None:
    assert re.findall(r"^\| `.*", PAGE.read_text(), re.MULTILINE) == table().splitlines()


def test_the_example_is_a_real_row() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    row = tomllib.loads(example)
    assert row == tomllib.loads((ROWS / f"{row['name']}.toml").read_text())
    assert Task.model_validate(row) == load_tasks()[row["name"]]
