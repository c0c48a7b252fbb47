"""A data set on disk: Parquet per split, a data card, and a record of how it was built."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ptxbench.adapt.data.build import Built
from ptxbench.adapt.data.card import data_card
from ptxbench.adapt.data.rows import Dropped, Row
from ptxbench.adapt.data.statistics import Statistics, describe
from ptxbench.core import Record, UsageError, first_problem, record_in
from ptxbench.store import write_atomically

SPLITS = ("train", "validation")


class BuildRecord(Record):
    """What ``build.json`` holds: the recipe's name, the digest and the numbers of the rows, and what was dropped.

    ``digest`` is the SHA-256 of the rows' canonical JSON in order; training saves it with its configuration.
    """

    schema_version: int = 1
    recipe: str
    kind: str
    digest: str
    statistics: Statistics
    dropped: tuple[Dropped, ...]


def check_parquet() -> None:
    """`UsageError` if Parquet cannot be written here; asked before anything is judged."""
    _arrow("pyarrow")


def write_data_set(built: Built, folder: Path) -> BuildRecord:
    """Writes ``train.parquet``, ``validation.parquet`` (if it has rows), ``README.md`` and ``build.json``."""
    if not built.rows:
        raise UsageError(f"the recipe '{built.recipe.name}' gave no rows, so {folder} was not written")
    ordered = [row for split in SPLITS for row in built.rows if row.split == split]
    record = BuildRecord(
        recipe=built.recipe.name,
        kind=built.recipe.kind,
        digest=rows_digest(ordered),
        statistics=describe(built),
        dropped=tuple(built.dropped),
    )
    for split in SPLITS:
        rows = [row for row in ordered if row.split == split]
        path = folder / f"{split}.parquet"
        if rows:
            write_atomically(path, _parquet(rows, built.recipe.kind))
        else:
            path.unlink(missing_ok=True)
    write_atomically(folder / "README.md", data_card(built, record.digest, record.statistics).encode())
    write_atomically(folder / "build.json", record.model_dump_json(indent=1).encode())
    return record


def read_build(folder: Path) -> BuildRecord:
    """The record of how a data set was built; `UsageError` if the folder holds none."""
    path = folder / "build.json"
    return record_in(path, BuildRecord, "a build record of schema 1", "give a folder of `ptxbench data build`")


def read_rows(folder: Path) -> list[Row]:
    """All rows of a data set; `UsageError` on a missing file or a malformed row, with its number."""
    parquet = _arrow("pyarrow.parquet")
    rows: list[Row] = []
    for split in SPLITS:
        path = folder / f"{split}.parquet"
        if not path.exists():
            continue
        try:
            records: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
            raise UsageError(f"{path} is not a readable Parquet file: {error}; build it again") from error
        for number, record in enumerate(records):
            rows.append(_row(record, path, number))
    if not rows:
        raise UsageError(f"{folder} holds no train.parquet or validation.parquet; run `ptxbench data build` first")
    return rows


def rows_digest(rows: Sequence[Row]) -> str:
    """SHA-256 over the rows in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row.model_dump(mode="json"), sort_keys=True).encode())
    return digest.hexdigest()


def _row(record: dict[str, Any], path: Path, number: int) -> Row:
    fields = {name: value for name, value in record.items() if name != "id" and value is not None}
    for name in ("sizes", "provenance"):
        fields[name] = json.loads(fields.get(name, "null"))
    try:
        return Row.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"row {number} of {path} is malformed ({first_problem(error)}); build it again") from error


def _parquet(rows: Sequence[Row], kind: str) -> bytes:
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    unused = ("prompt", "completion", "failure", "fault") if kind == "expert" else ("messages",)
    records: list[dict[str, Any]] = []
    for row in rows:
        record = row.model_dump(mode="json")
        for name in unused:
            del record[name]
        record["sizes"] = json.dumps(record["sizes"])
        record["provenance"] = json.dumps(record["provenance"], sort_keys=True)
        records.append({"id": row.id, **record})
    buffer = io.BytesIO()
    table: Any = arrow.Table.from_pylist(records, schema=_schema(arrow, kind))
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _schema(arrow: Any, kind: str) -> Any:
    text = arrow.string()
    message = arrow.struct([("role", text), ("content", text), ("reasoning_content", text)])
    turns = arrow.list_(message)
    own = [("messages", turns)] if kind == "expert" else [
        ("prompt", turns), ("completion", turns), ("failure", text), ("fault", text)
    ]  # fmt: skip
    return arrow.schema([
        ("id", text), ("kind", text), *own, ("task", text), ("task_family", text), ("target", text),
        ("kernel_family", text), ("techniques", arrow.list_(text)), ("condition", text), ("sizes", text),
        ("tokens", arrow.int64()), ("speedup", arrow.float64()), ("split", text), ("licence", text),
        ("provenance", text),
    ])  # fmt: skip


def _arrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError("data sets are Parquet files, which need the package pyarrow; install it with "
                         "pip install 'ptxbench[data]'") from error  # fmt: skip
