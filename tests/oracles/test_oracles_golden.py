"""The simulator against golden vectors, which an H200 computed from the same inputs with the same probe kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from golden_bounds import agrees
from golden_bundle import labels
from golden_inputs import of_class
from golden_probes import Probe, probe_names, probe_of
from oracles_run import Array, Launch

from ptxbench.core import Observation

GOLDEN = Path(__file__).with_name("golden")
FAULTS: dict[str, str] = json.loads((GOLDEN / "faults.json").read_text())


def run(probe: Probe) -> tuple[Observation, Array]:
    buffers = {**probe.inputs, "out": probe.output()}
    return Launch(probe.kernel, probe.parameters, (1, 1, 1), buffers).simulate(), buffers["out"]


@cache
def simulated(name: str) -> tuple[Probe, Array]:
    probe = probe_of(name)
    seen, values = run(probe)
    assert seen.fault is None, seen.fault
    return probe, values


def fault_of(name: str) -> str:
    seen, _ = run(probe_of(name))
    return "" if seen.fault is None else seen.fault.kind


def differences(probe: Probe, values: Array, stored: Mapping[str, Array]) -> list[str]:
    """A line for each row that does not agree with the stored ones. Rows of instructions added later are left out."""
    rows, hardware = stored["rows"].tolist(), stored["values"]
    measured = dict(zip(rows, hardware, strict=False))
    known = set(rows[len(hardware) :])
    lines = labels(probe)
    changed = [line for line in lines[len(values) :] if line not in known]
    assert not changed, f"inputs changed since the golden vectors were taken; take them again: {changed}"
    wrong: list[str] = []
    compared = [(result, line, row) for result, line, row in zip(probe.results, lines, values, strict=False)
                if line in measured]  # fmt: skip
    assert len(compared) > len(hardware) // 2
    for result, line, row in compared:
        first = of_class("f32")[0].astype(np.uint64) if result.operands[1:2] == ("f32",) else None
        good = agrees(result, row, measured[line], first)
        if not good.all():
            lane = int(np.argmin(good))
            pair = f"simulator {int(row[lane]):#x}, hardware {int(measured[line][lane]):#x}"
            wrong.append(f"{line}: {int((~good).sum())} lanes, the first is {lane}: {pair}")
    return wrong


@pytest.mark.parametrize("name", probe_names())
def test_agrees_with_hardware(name: str) -> None:
    if name in FAULTS:
        assert fault_of(name) == FAULTS[name]
        return
    with np.load(GOLDEN / f"{name}.npz") as stored:
        wrong = differences(*simulated(name), stored)
    assert not wrong, f"{len(wrong)} rows differ:\n" + "\n".join(wrong)


def test_a_difference_is_reported() -> None:
    probe, values = simulated("bits")
    stored = {"rows": np.array(labels(probe)), "values": values.copy()}
    assert not differences(probe, values, stored)
    stored["values"][7, 3] ^= 1
    (line,) = differences(probe, values, stored)
    assert line.startswith(labels(probe)[7])
    assert "the first is 3" in line


def test_changed_inputs_are_not_compared() -> None:
    probe, values = simulated("bits")
    stored = {"rows": np.array(labels(probe)[: len(values)]), "values": values}
    with pytest.raises(AssertionError, match="inputs changed"):
        differences(probe, values, stored)
