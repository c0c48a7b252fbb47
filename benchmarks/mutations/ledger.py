"""The results file of the gate: rows by file and kernel, kept so that a run that was stopped goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ptxbench.simulator
from benchmarks.mutations.mutants import Mutant
from benchmarks.mutations.trying import Outcome, Subject
from ptxbench.core import digest_of, file_parts
from ptxbench.store import write_atomically

Row = dict[str, Any]
_SAVE_EVERY = 20
_CODE = {".py", ".cpp", ".hpp"}


def simulator_digest() -> str:
    """16 hexadecimal digits that change whenever a source file of the simulator does."""
    root = Path(ptxbench.simulator.__file__).parent
    return digest_of(file_parts(root, (path for path in root.rglob("*") if path.suffix in _CODE)))[:16]


class Ledger:
    """Rows of mutants, and an entry for each file: how many mutants there are, how many were drawn by which seed, the
    simulator's digest, the seconds they took, the kinds of findings that the kernel shows without mutation, and on how
    many kinds of inputs and sizes it ran. A row that was tried once more has the digest of the simulator of that time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.files: dict[str, Row] = {entry["file"]: entry for entry in found.get("files", ())}
        self.rows: dict[tuple[str, str, int], Row] = {_key(row): row for row in found.get("mutants", ())}
        self._unsaved = 0

    def begin(self, kernel: Subject, drawn: int, seed: int) -> None:
        """Begins a file, or goes on with it; rows of another simulator or another draw are dropped."""
        file = kernel.file
        entry = {
            "file": file, "mutants": sum(1 for _ in kernel.mutants()), "drawn": drawn, "seed": seed,
            "simulator": simulator_digest(), "known": sorted(kernel.known), "inputs": 1 + len(kernel.others),
        }  # fmt: skip
        if any(self.files.get(file, {}).get(name) != value for name, value in entry.items()):
            self.rows = {key: row for key, row in self.rows.items() if row["file"] != file}
            self.files[file] = {**entry, "seconds": 0.0}

    def has(self, file: str, mutant: Mutant) -> bool:
        """Whether the mutant was tried."""
        return (file, mutant.kernel, mutant.number) in self.rows

    def correct(self, file: str, mutant: Mutant, outcome: Outcome) -> None:
        """Puts the outcome of another attempt, on the simulator as it is now, in the place of the one that is there."""
        row = self.rows[file, mutant.kernel, mutant.number]
        row |= {"noticed": outcome.noticed, "kind": outcome.kind, "simulator": simulator_digest()}

    def add(self, file: str, mutant: Mutant, outcome: Outcome, seconds: float) -> None:
        """Adds a row, and saves now and then."""
        row = {
            "file": file, "kernel": mutant.kernel, "number": mutant.number, "place": mutant.place, "line": mutant.line,
            "class": mutant.group, "operation": mutant.operation, "opcode": mutant.opcode,
            "noticed": outcome.noticed, "kind": outcome.kind,
        }  # fmt: skip
        self.rows[_key(row)] = row
        self.files[file]["seconds"] = round(self.files[file]["seconds"] + seconds, 1)
        self._unsaved += 1
        if self._unsaved >= _SAVE_EVERY:
            self.save()

    def report(self) -> dict[str, Any]:
        """The content of the results file."""
        order = {file: number for number, file in enumerate(self.files)}
        rows = sorted(self.rows.values(), key=lambda row: (order[row["file"]], row["kernel"], row["number"]))
        made = datetime.now(UTC).isoformat(timespec="seconds")
        return {"schema": 2, "made": made, "files": list(self.files.values()), "mutants": rows}

    def save(self) -> None:
        """Writes the results file."""
        write_atomically(self._path, f"{json.dumps(self.report(), indent=1)}\n".encode())
        self._unsaved = 0


def _key(row: Row) -> tuple[str, str, int]:
    return row["file"], row["kernel"], row["number"]
