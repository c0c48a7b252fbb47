"""The bundled kernels as cases, to begin a campaign with.

python tests/fuzz/fuzz_corpus.py FOLDER
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from fuzz_case import Case, options

from ptxbench.cli.machine import make_evaluator
from ptxbench.core import Artifact, make_candidate
from ptxbench.solutions import Solution, solutions
from ptxbench.tasks import get_task


def bundled() -> Iterator[tuple[Solution, Case]]:
    """Every known-good kernel with its plan at the first small size of its task."""
    evaluator = make_evaluator(threading.Event(), lambda stage: None)
    for row in solutions():
        task = get_task(row.task)
        artifact = evaluator.compile(
            make_candidate(row.source(), task=row.task, target=row.target, origin=row.file)
        )
        assert isinstance(artifact, Artifact), artifact
        plans = evaluator.record(artifact, task, task.of_tier("small")[:1])
        assert isinstance(plans, tuple), plans
        registers = max(facts.registers for facts in artifact.kernels)
        moves = "setmaxnreg" in artifact.ptx
        yield row, Case(
            ptx=artifact.ptx, plan=plans[0], options=options(), registers=registers, moves_registers=moves
        )


def main() -> None:
    folder = Path(sys.argv[1])
    for row, case in bundled():
        case.save(folder / (row.file.replace("/", "_") + ".json"))


if __name__ == "__main__":
    main()
