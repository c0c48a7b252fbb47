from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.core import Outcome, Target, UsageError, Verdict
from ptxbench.store import VerdictKey, VerdictStore, read_verdict, write_atomically


def make_key(**changes: object) -> VerdictKey:
    row: dict[str, object] = {
        "task": "gemm_n7168_k5120", "target": Target.SM_90A, "source_digest": "ab", "workloads": ("small",),
        "strict": False, "device": "simulator", "versions": {"judge": "1", "nvcc": "13.0.88"},
    }  # fmt: skip
    return VerdictKey.model_validate(row | changes)


def make_verdict() -> Verdict:
    return Verdict(
        outcome=Outcome.WRONG_RESULT, reason="C is wrong.", task="gemm_n7168_k5120", target=Target.SM_90A, device={}
    )


def test_round_trip(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    assert store.get(make_key()) is None
    path = store.put(make_key(), make_verdict())
    assert store.get(make_key()) == make_verdict() == read_verdict(path)


def test_every_part_of_the_key_counts(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {"task": "x"}, {"target": Target.SM_100A}, {"source_digest": "cd"}, {"workloads": ("small", "heldout")},
        {"strict": True}, {"device": "cuda"}, {"versions": {"judge": "2", "nvcc": "13.0.88"}},
    ]  # fmt: skip
    digests = {make_key(**change).digest for change in [{}, *changes]}
    assert len(digests) == len(changes) + 1


def test_the_order_of_versions_does_not_count() -> None:
    assert make_key().digest == make_key(versions={"nvcc": "13.0.88", "judge": "1"}).digest


def test_a_damaged_verdict_counts_as_absent(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    path = store.put(make_key(), make_verdict())
    path.write_text(path.read_text()[:40])
    assert store.get(make_key()) is None
    with pytest.raises(UsageError, match="not a verdict of schema 1"):
        read_verdict(path)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot write"):
        write_atomically(tmp_path / "file" / "verdict.json", b"{}")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
