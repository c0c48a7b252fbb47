"""Makes the bundle of probe kernels for a GPU host: ``python tests/oracles/golden_bundle.py FOLDER [NAME...]``.

A GPU host needs neither compiler nor simulator then; ``test_oracles_golden_gpu.py`` runs the bundle and writes what it
measures.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from golden_probes import Probe, Result, probe_names, probe_of
from oracles_run import Launch

from ptxbench.devices.cuda import Case, write_bundle

ROWS = "rows.txt"


def label(result: Result) -> str:
    """What a row is, in a line: it stays the same when instructions are added before it."""
    return f"{result.opcode} | {' '.join(result.operands)} | {result.part} {result.type}"


def labels(probe: Probe) -> list[str]:
    """One line a row, and one a buffer with the digest of its content."""
    digests = [f"{name} {hashlib.sha256(array.tobytes()).hexdigest()}" for name, array in probe.inputs.items()]
    return [*map(label, probe.results), *digests]


def main(folder: Path, names: Sequence[str]) -> None:
    """Writes a case for each named probe below ``folder``, in place of an earlier one, with the list of its rows."""
    for probe in map(probe_of, names):
        for earlier in (folder / probe.name).glob("*.bin"):  # buffers that the probe may no longer have
            earlier.unlink()
        buffers = {**probe.inputs, "out": probe.output()}
        artifact, plan = Launch(probe.kernel, probe.parameters, (1, 1, 1), buffers).plan()
        inputs = {name: np.ascontiguousarray(array).tobytes() for name, array in probe.inputs.items()}
        write_bundle(folder, {probe.name: Case(name=probe.name, artifact=artifact, plan=plan, inputs=inputs)})
        (folder / probe.name / ROWS).write_text("\n".join(labels(probe)) + "\n")
        print(f"{probe.name}: {len(probe.results)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or probe_names())
