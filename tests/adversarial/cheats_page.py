"""``docs/cheats.md``: what was tried and what came of it, a row per attempt."""

from __future__ import annotations

import re
from pathlib import Path

from adversarial_attempts import Attempt, groups

from ptxbench.core import Verdict

PATH = Path(__file__).parents[2] / "docs" / "cheats.md"

_HEAD = """# What was tried, and what came of it

Every row is a candidate in `tests/adversarial/` that goes through the whole pipeline on the simulator. The tables are
made by running them, and a test fails where a row differs from what the pipeline says. Time limits are shorter there
than in earnest.

```
pytest tests/adversarial -m ''                  # check
pytest tests/adversarial -m '' --update-docs    # write this page anew
```

"""
UPDATE = "run `pytest tests/adversarial --update-docs -m ''`"
_TITLES = "| attempt | what it tries | verdict | reason |"

# What may differ from run to run or from version to version, and says nothing about the kind of verdict.
_PASSING = (
    (re.compile(r" \((?:RMS error|relative RMS) [^()]*\)"), ""),
    (re.compile(r" \(CTA \([\d,]+\)[^()]*\)"), ""),
    (re.compile(r" by CTA \([\d,]+\) warp \d+, lanes \w+"), ""),
    (re.compile(r"(?<=three recordings have )0x.*(?=\.)"), "three different values"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x..."),
    (re.compile(r"(?<=variables are )\d+"), "N"),
)


def row(attempt: Attempt, verdict: Verdict) -> str:
    """The line of an attempt."""
    reason = verdict.reason
    for passing, instead in _PASSING:
        reason = passing.sub(instead, reason)
    cells = (attempt.name, attempt.about, f"`{verdict.outcome.value}`", reason)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class Page:
    """The rows of the page by the attempt's name. With ``update`` they are replaced, otherwise compared."""

    def __init__(self, *, update: bool) -> None:
        self.update = update
        text = PATH.read_text() if PATH.exists() else ""
        self.text = text
        lines = [line for line in text.splitlines() if line.startswith("| ") and line != _TITLES]
        self.rows = {line.removeprefix("| ").split(" | ")[0]: line for line in lines}

    def compare(self, attempt: Attempt, verdict: Verdict) -> None:
        """Fails unless the attempt has the row that it should."""
        expected = row(attempt, verdict)
        if self.update:
            self.rows[attempt.name] = expected
        assert self.rows.get(attempt.name) == expected, f"docs/cheats.md is out of date; {UPDATE}"

    def render(self) -> str:
        """The whole page from the rows that there are."""
        parts = [_HEAD]
        for group in groups():
            rows = [self.rows[attempt.name] for attempt in group.attempts if attempt.name in self.rows]
            lines = [f"## {group.title}", "", group.about.strip(), "", _TITLES, "|---|---|---|---|", *rows, "", ""]
            parts.append("\n".join(lines))
        return "".join(parts).rstrip() + "\n"

    def write(self) -> None:
        PATH.write_text(self.render())
