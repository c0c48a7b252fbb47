"""``docs/cheats.md``: what was tried and what came of it, a row per attempt."""

from __future__ import annotations

import re
from pathlib import Path

from adversarial_attempts import Attempt, groups

from ptxbench.core import Verdict

PATH = Path(__file__).parents[2] / "docs" / "cheats.md"

_HEAD = """# What was tried, and what came of it

Every row is a candidate in `tests/adversarial/` that goes through the whole pipeline on the simulator. The table is made by running them, and a test fails where a row differs from what the pipeline says:

```
pytest tests/adversarial                 # check
pytest tests/adversarial --update-docs   # write this page anew
```

"""
_COLUMNS = "| attempt | what it tries | verdict | reason |\n|---|---|---|---|\n"

# How large a measured error is does not belong on a page; a last digit may differ between processors.
_MEASURED = re.compile(r" \(RMS error [^()]*\)")


def row(attempt: Attempt, verdict: Verdict) -> str:
    """The line of an attempt."""
    cells = (attempt.name, attempt.about, f"`{verdict.outcome.value}`", _MEASURED.sub("", verdict.reason))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class Page:
    """The rows of the page by the attempt's name. With ``update`` they are replaced, otherwise compared."""

    def __init__(self, *, update: bool) -> None:
        self.update = update
        text = PATH.read_text() if PATH.exists() else ""
        self.rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
        self.text = text

    def compare(self, attempt: Attempt, verdict: Verdict) -> None:
        """Fails unless the attempt has the row that it should."""
        expected = row(attempt, verdict)
        if self.update:
            self.rows[attempt.name] = expected
        assert self.rows.get(attempt.name) == expected, "docs/cheats.md is out of date: pytest tests/adversarial --update-docs"

    def render(self) -> str:
        """The whole page from the rows that there are."""
        parts = [_HEAD]
        for group in groups():
            lines = [self.rows[attempt.name] for attempt in group.attempts if attempt.name in self.rows]
            parts.append(f"## {group.title}\n\n{group.about.strip()}\n\n{_COLUMNS}" + "\n".join(lines) + "\n\n")
        return "".join(parts).rstrip() + "\n"

    def write(self) -> None:
        PATH.write_text(self.render())
