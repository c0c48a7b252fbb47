from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adapt_verdicts import Judge, a_verdict

from ptxbench.adapt import Built, Recipe, build, read_build, read_rows, rows_digest, write_data_set
from ptxbench.adapt.data.judged import Say
from ptxbench.core import Outcome, UsageError
from ptxbench.solutions import include_dir

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


@contextmanager
def silent(title: str, total: int) -> Generator[Say]:
    yield lambda line: None


def built(kind: str, **fields: object) -> Built:
    recipe = Recipe.model_validate({
        "name": "test", "kind": kind, "about": "A test.", "validation": ["mha_fwd_d64"],
        "sources": {"families": ["backward_blackwell", "forward_blackwell"], "per_task": 1},
        "faults": {"names": ["missing_semicolon"]},
        "shapes": {"attention_backward": [{"B": 2, "H": 8, "S": 2048}]}, **fields,
    })  # fmt: skip
    judge = Judge({"ptx::fence_mbarrier_init()\n": a_verdict("", Outcome.COMPILE_ERROR, reason="expected a ';'")})
    return build(recipe, judge, include_dir(), jobs=1, display=silent)


@pytest.mark.parametrize("kind", ["expert", "repair"])
def test_rows_survive_the_round_trip(kind: str, tmp_path: Path) -> None:
    data = built(kind)
    record = write_data_set(data, tmp_path)
    rows = read_rows(tmp_path)
    assert {row.id for row in rows} == {row.id for row in data.rows}
    assert rows_digest(rows) == record.digest == read_build(tmp_path).digest
    assert (tmp_path / "validation.parquet").exists()
    columns = parquet.read_schema(tmp_path / "train.parquet").names
    assert ("messages" in columns) == (kind == "expert")
    assert ("prompt" in columns) == ("completion" in columns) == (kind == "repair")


def test_the_datasets_library_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    write_data_set(built("repair"), tmp_path / "data")
    files = {split: str(tmp_path / "data" / f"{split}.parquet") for split in ("train", "validation")}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    row = loaded["train"][0]
    assert [turn["role"] for turn in row["prompt"]] == ["system", "user", "assistant", "user"]
    assert row["completion"][0]["reasoning_content"]
    assert row["failure"] == "compile_error"


def test_building_again_removes_a_split_that_is_empty_now(tmp_path: Path) -> None:
    write_data_set(built("expert"), tmp_path)
    write_data_set(built("expert", validation=[]), tmp_path)
    assert not (tmp_path / "validation.parquet").exists()


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    write_data_set(built("expert"), tmp_path)
    path = tmp_path / "train.parquet"
    records = parquet.read_table(path).to_pylist()
    records[0]["target"] = "sm_10"
    parquet.write_table(pyarrow.Table.from_pylist(records), path)
    with pytest.raises(UsageError, match=r"row 0 of .*train\.parquet is malformed \(target"):
        read_rows(tmp_path)


def test_what_is_no_data_set_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no train\.parquet"):
        read_rows(tmp_path)
    with pytest.raises(UsageError, match=r"cannot read .*build\.json"):
        read_build(tmp_path)
    (tmp_path / "train.parquet").write_text("not parquet")
    with pytest.raises(UsageError, match="not a readable Parquet file"):
        read_rows(tmp_path)
    (tmp_path / "build.json").write_text("{}")
    with pytest.raises(UsageError, match="not a build record"):
        read_build(tmp_path)
