"""Makes and runs cases, for ever or so many; the process that may crash. See fuzz_campaign.py.

python tests/fuzz/fuzz_worker.py FOLDER SEED [--cases N] [--sanitize]
python tests/fuzz/fuzz_worker.py FOLDER --replay [--sanitize]        runs the cases in FOLDER/corpus as they are

FOLDER/current.json is the case in progress, FOLDER/corpus what reached new code or a new ending, and FOLDER/log.jsonl
has a line for each case that has ended. A case goes to FOLDER/defects if it raises an exception that is not the
candidate's, or if a sanitizer writes to the standard error, which has to be a file.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import time
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from fuzz_build import LARGEST_MB, SANITIZED, Coverage
from fuzz_case import Case, cases_in, read_case, run_case
from fuzz_mutate import mutate
from fuzz_synthesis import synthesise
from pydantic import ValidationError

from ptxbench.simulator import machine_library

_MEMORY = 2 * LARGEST_MB << 20
_IDLE = ("refused", "unfit", "impossible_launch")  # endings before anything ran
NEW = 0.3
"""Share of cases that are made from nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    chosen = parser.parse_args()
    machine = machine_library(SANITIZED) if chosen.sanitize else None
    if machine is None:  # sanitizers reserve more than any limit, and have one of their own
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    corpus = [read_case(path) for path in cases_in(chosen.folder / "corpus")]
    made = iter(corpus) if chosen.replay else _made(np.random.default_rng(chosen.seed), corpus, machine)
    run_all(chosen.folder, islice(made, chosen.cases), corpus, machine, grow=not chosen.replay)


def run_all(
    folder: Path, cases: Iterator[Case], corpus: list[Case], machine: ctypes.CDLL | None, *, grow: bool
) -> None:
    """Runs cases and writes down what becomes of them. Those that run and reach something new join ``corpus`` if it may
    grow. ``machine`` is one with sanitizers, which measures coverage, or the plain one.
    """
    coverage = Coverage(machine) if machine else None
    endings: set[str] = set()
    with (folder / "log.jsonl").open("a") as log:
        for case in cases:
            case.save(folder / "current.json")
            began, said = time.monotonic(), os.fstat(2).st_size
            ending, trace = _ending(case, machine)
            if os.fstat(2).st_size > said:
                trace += _said(said)
            gained = coverage.gained() if coverage else 0
            if trace:
                _keep(case, folder / "defects", trace)
            elif grow and (gained or ending.split("(")[0] not in endings) and not ending.startswith(_IDLE):
                corpus.append(case)
                _keep(case, folder / "corpus")
            endings.add(ending.split("(")[0])
            entry = {
                "ending": ending, "seconds": round(time.monotonic() - began, 3), "gained": gained,
                "blocks": coverage.total if coverage else 0,
            }  # fmt: skip
            log.write(json.dumps(entry) + "\n")
            log.flush()


def _made(rng: np.random.Generator, corpus: list[Case], machine: ctypes.CDLL | None) -> Iterator[Case]:
    while True:
        yield _next(rng, corpus, machine)


def _next(rng: np.random.Generator, corpus: list[Case], machine: ctypes.CDLL | None) -> Case:
    while True:
        if not corpus or rng.random() < NEW:
            return synthesise(rng, machine)
        try:
            return mutate(rng, corpus[rng.integers(len(corpus))])
        except ValidationError:  # a plan that cannot even be written down
            continue


def _ending(case: Case, machine: ctypes.CDLL | None) -> tuple[str, str]:
    try:
        return run_case(case, machine), ""
    except Exception as error:  # what is looked for
        return f"exception: {type(error).__name__}", traceback.format_exc()


def _said(begin: int) -> str:
    """What was written to the standard error from a byte on."""
    with Path("/proc/self/fd/2").open(errors="replace") as file:
        file.seek(begin)
        return file.read()


def _keep(case: Case, folder: Path, trace: str = "") -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.time_ns()}.json"
    case.save(path)
    if trace:
        path.with_suffix(".txt").write_text(trace)


if __name__ == "__main__":
    main()
