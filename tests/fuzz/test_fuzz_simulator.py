"""Fuzzed programs and plans end cleanly: refused, at fault, or finished; no signal, no exception, no hang.

Cases that found defects are kept in ``found`` as regressions. The slow tests run with address and undefined-behaviour
sanitizers; campaigns of hours are run by fuzz_campaign.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fuzz_build import preload, prepare
from fuzz_case import cases_in, read_case, run_case
from fuzz_mutate import mutate
from fuzz_synthesis import synthesise

HERE = Path(__file__).parent
FOUND = HERE / "found"
CASES = 400
SLOW_CASES = 3000
LIMIT_S = 120.0
WHOLE_STEPS, WHOLE_S = 20_000_000, 300.0  # of a known-good kernel under the sanitizers
ENDINGS = {
    "alignment_of_4_gib": "refused", "grid_of_2_to_32": "time_limit", "offset_beyond_64_bits": "refused",
    "relaxed_cluster_arrival": "finished",
}  # fmt: skip
"""What cases have to end with that would otherwise end cleanly, but wrongly."""
REGRESSIONS = [pytest.param(path, id=path.stem) for path in cases_in(FOUND)]


def worker(folder: Path, *arguments: str, sanitize: bool = False, limit_s: float = LIMIT_S) -> list[dict[str, object]]:
    """Runs a worker to its end in a process of its own; its log. It must end well, quietly and in time."""
    folder.mkdir(exist_ok=True)
    if sanitize:
        prepare()
    command = [sys.executable, str(HERE / "fuzz_worker.py"), str(folder), *arguments]
    command += ["--sanitize"] if sanitize else []
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **(preload(halt=True) if sanitize else {})}
    said = folder / "worker.txt"
    with said.open("w") as output:
        done = subprocess.run(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=limit_s, check=False
        )
    defects = [path.read_text() for path in (folder / "defects").glob("*.txt")]
    assert not defects, defects[0]
    assert done.returncode == 0, f"{said.read_text()[-4000:]}\nat {(folder / 'current.json').read_text()}"
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def seeded(folder: Path, paths: list[Path]) -> Path:
    """A campaign's folder with these cases as its corpus."""
    (folder / "corpus").mkdir(parents=True)
    for path in paths:
        shutil.copy(path, folder / "corpus")
    return folder


def test_fuzzed_cases_end_cleanly(tmp_path):
    log = worker(tmp_path / "w", "1", "--cases", str(CASES))
    kinds = Counter(str(entry["ending"]).split(":")[0].split()[0] for entry in log)
    assert len(log) == CASES
    # The cases are worth something: a good part runs, and they end in many ways.
    assert kinds["finished"] > CASES / 20
    assert len(kinds) >= 6
    assert len({entry["ending"] for entry in log}) > CASES / 8


def test_equal_seeds_make_equal_cases():
    first, second = (synthesise(np.random.default_rng(5)) for _ in range(2))
    assert first == second
    assert mutate(np.random.default_rng(6), first) == mutate(np.random.default_rng(6), first)
    assert any(mutate(np.random.default_rng(seed), first) != first for seed in range(4))


@pytest.mark.parametrize("path", REGRESSIONS)
def test_what_was_found_ends_cleanly(path, tmp_path):
    (entry,) = worker(seeded(tmp_path / "w", [path]), "--replay")
    assert str(entry["ending"]).startswith(ENDINGS.get(path.stem, "")), entry
    assert entry["ending"] != "finished shared_memory_race"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", REGRESSIONS)
def test_what_was_found_is_defined(path, tmp_path):
    assert len(worker(seeded(tmp_path / "w", [path]), "--replay", sanitize=True)) == 1


def test_a_case_is_what_was_saved(tmp_path):
    case = synthesise(np.random.default_rng(7))
    case.save(tmp_path / "case.json")
    assert read_case(tmp_path / "case.json") == case
    assert run_case(case) == run_case(case)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_found_under_the_sanitizers(tmp_path):
    log = worker(tmp_path / "w", "2", "--cases", str(SLOW_CASES), sanitize=True, limit_s=1500)
    assert len(log) == SLOW_CASES
    assert max(int(str(entry["blocks"])) for entry in log) > 5000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_bundled_kernels_run_under_the_sanitizers(tmp_path):
    pytest.importorskip("ptxbench.cli.machine")
    from fuzz_corpus import bundled

    folder = seeded(tmp_path / "w", [])
    whole = {"step_limit": WHOLE_STEPS, "time_limit_s": WHOLE_S}
    for row, case in bundled():
        case = case.model_copy(update={"options": case.options.model_copy(update=whole)})
        case.save(folder / "corpus" / (row.file.replace("/", "_") + ".json"))
    log = worker(folder, "--replay", sanitize=True, limit_s=1500)
    assert {entry["ending"] for entry in log} == {"finished"}
