"""SARIF 2.1.0: findings in the form that code hosts and editors show beside the lines they are about."""

from __future__ import annotations

import json
from typing import Any

from ptxbench.check.findings import Finding, Report, Severity

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "race": "error", "rule": "warning"}


def sarif(report: Report, version: str) -> str:
    """The log of one report, as JSON text. ``version`` is that of this package."""
    rules = {finding.kind: finding for finding in reversed(report.findings)}
    driver = {
        "name": "ptxbench check",
        "version": version,
        "rules": [
            {
                "id": kind,
                "shortDescription": {"text": kind.replace("_", " ")},
                **({"help": {"text": finding.advice}} if finding.advice else {}),
                "defaultConfiguration": {"level": _LEVELS[finding.severity]},
            }
            for kind, finding in sorted(rules.items())
        ],
    }
    numbers = {kind: number for number, kind in enumerate(sorted(rules))}
    results = [_result(finding, numbers[finding.kind], report.file) for finding in report.findings]
    return json.dumps(
        {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}, indent=2
    )


def _result(finding: Finding, rule: int, file: str) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": file}}}
    line = finding.source_line or (finding.ptx_line if file.endswith(".ptx") else 0)
    if line:
        location["physicalLocation"]["region"] = {"startLine": line}
    if finding.kernel:
        location["logicalLocations"] = [{"name": finding.kernel, "kind": "function"}]
    return {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message} {finding.advice}".strip()},
        "locations": [location],
        "properties": {
            "severity": finding.severity,
            "ptxLine": finding.ptx_line,
            "occurrences": finding.occurrences,
            "sizes": finding.sizes,
            "schedules": list(finding.under),
        },
    }
