"""Every command in the documentation is run as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ptxbench.native import Cache

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN_HERE = ("make quickstart", "make test", "make benchmark", "source .venv")


def commands_of(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_work(page: Path, tmp_path: Path, shared_cache: Cache) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PTXBENCH_CACHE": str(shared_cache.root),
    }
    for line in commands_of(page):
        if line.startswith(NOT_RUN_HERE):
            continue
        command, _, comment = line.partition("  # ")
        expected = int(match[1]) if (match := re.search(r"exit (\d)", comment)) else 0
        done = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == expected, f"{command}\n{done.stdout}\n{done.stderr}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [line.split() for page in PAGES for line in commands_of(page)]
    named = {word for first, *words in commands if first == "make" for word in words}
    assert named <= targets
    assert {"quickstart", "test"} <= named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


def test_the_page_of_benchmarks_shows_the_results() -> None:
    page = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))
    report = json.loads((ROOT / "results" / "cpu" / "benchmarks.json").read_text())
    shown = (ROOT / "docs" / "benchmarks.md").read_text().split(page["BEGIN"])[1].split(page["END"])[0]
    assert shown.strip() == page["render"](report).strip()


def test_the_picture_refers_to_nothing_outside() -> None:
    picture = (ROOT / "docs" / "quickstart.svg").read_text()
    addresses = set(re.findall(r"https?://[^\"' )]+", picture))
    assert addresses == {"http://www.w3.org/2000/svg"}
