"""Verdicts of another run, a GPU's for instance, taken instead of asking the judge again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ptxbench.core import Candidate, Evaluator, Target, UsageError, Verdict, first_problem

Key = tuple[str, Target, str]
"""Task, target and digest of the source."""


@dataclass(frozen=True)
class RecordedFirst:
    """An evaluator that answers with a recorded verdict where there is one of the very source, and asks elsewhere."""

    known: Mapping[Key, Verdict]
    evaluator: Evaluator

    def evaluate(self, candidate: Candidate) -> Verdict:
        """The recorded verdict, or the evaluator's; raises what that raises."""
        found = self.known.get((candidate.task, candidate.target, candidate.digest))
        return found if found is not None else self.evaluator.evaluate(candidate)


def read_verdicts(paths: Iterable[Path]) -> dict[Key, Verdict]:
    """The verdicts in files of `ptxbench eval FOLDER --json`, one a line; later ones count.

    Lines of kernels that got no verdict are passed over. `UsageError` with place for anything else.
    """
    known: dict[Key, Verdict] = {}
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the verdicts in {path}: {error}") from error
        for number, line in enumerate(lines, 1):
            verdict = _verdict(line, f"line {number} of {path}")
            if verdict is not None:
                known[verdict.task, verdict.target, verdict.source_digest] = verdict
    return known


def _verdict(line: str, where: str) -> Verdict | None:
    try:
        fields = json.loads(line)
        if isinstance(fields, dict) and "outcome" in fields and fields["outcome"] is None:
            return None
        return Verdict.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"{where} is no verdict ({first_problem(error)}); give what `ptxbench eval FOLDER --json` "
                         "printed") from error  # fmt: skip
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON ({error.msg}); give what `ptxbench eval FOLDER --json` printed"
                         ) from error  # fmt: skip
