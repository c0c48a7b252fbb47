"""`ptxbench data` as a user meets it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parent.parent.parent / "recipes" / "expert.toml"


def run(*arguments: str | Path, cache: Path) -> tuple[int, str]:
    """Exit code and the last line of standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "ptxbench", "data", *map(str, arguments)], capture_output=True, text=True, timeout=120,
        check=False, env=os.environ | {"PTXBENCH_CACHE": str(cache)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stderr.strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    code, sentence = run("build", tmp_path / "none.toml", "-o", tmp_path / "data", cache=tmp_path)
    assert code == 2
    assert sentence.startswith(f"ptxbench: cannot read the recipe {tmp_path / 'none.toml'}")
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed here")
def test_a_missing_package_is_said_before_anything_is_judged(tmp_path: Path) -> None:
    code, sentence = run("build", RECIPE, "-o", tmp_path / "data", cache=tmp_path)
    assert code == 2
    assert "pip install 'ptxbench[data]'" in sentence


def test_a_report_of_what_is_no_data_set(tmp_path: Path) -> None:
    code, sentence = run("report", tmp_path, cache=tmp_path)
    assert code == 2
    assert "build.json" in sentence
    assert not list(tmp_path.glob("*.html"))


def test_a_device_that_does_not_exist(tmp_path: Path) -> None:
    code, sentence = run("build", RECIPE, "-o", tmp_path / "data", "--device", "tpu", cache=tmp_path)
    assert code == 2
    assert "--device takes" in sentence or "pyarrow" in sentence
