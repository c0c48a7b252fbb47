from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.evaluate import diagnose
from ptxbench.native import Cache


def test_this_machine_can_judge(shared_cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
    stages: list[str] = []
    checks = {check.name: check for check in diagnose(shared_cache, stages.append)}
    assert all(check.ok for check in checks.values() if check.required), checks
    assert len(stages) == len(checks)
    assert not checks["GPU"].required


def test_what_is_missing_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path / "file" / "cache"))
    checks = {check.name: check for check in diagnose(Cache(), lambda stage: None)}
    assert not checks["host compiler"].ok
    assert "install" in checks["host compiler"].detail
    assert not checks["cache"].ok
    assert "PTXBENCH_CACHE" in checks["cache"].detail
