"""The page of the early check holds the numbers of its results file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cuda_page import BEGIN, END, filled, numbers

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "h200" / "early_check.json"
PAGE = ROOT / "docs" / "early_check.md"

FOUND: dict[str, Any] = {
    "machine": {"date": "2026-01-02T03:04:05+00:00", "name": "GPU", "sm_count": 132, "nvidia_smi": ["580.1", "1 MHz"]},
    "versions": {"torch": "2.11"},
    "start": {"executor_s": 1.26, "baseline_s": 6.8},
    "replay": {
        "one-small": {"rms_ratio": 1.00001, "max_ratio": 1.25, "graph_equals_plain": True, "bits_equal_simulator": 0.9},
        "two-small": {"rms_ratio": 1.5, "max_ratio": 1.0, "graph_equals_plain": False},
    },
    "counts": {"one-small": {
        "records": 421, "wgmma_share": 1.0, "process_s": [1.5, 1.25], "open_s": [0.1, 0.2], "count_s": [0.004, 0.005],
        "device": {"wgmma": {"executed": 8}, "mbarrier": {"executed": 9}},
        "simulator": {"wgmma": {"executed": 8}, "mbarrier": {"executed": 7}},
    }},
    "counting": {
        "one-small kernel_twice": {"what": "twice", "ranges": [{"k": {"records": 421}}, {}]},
        "one-small plan": {"what": "the plan", "failed": ["an error"]},
    },
    "faults": {
        "spin": {"fault": {"kind": "time_limit"}, "until_reported_s": 5.07, "until_next_result_s": 0.85},
        "stray_write": {"stray_writes": ["C"], "changed_inputs": []},
    },
    "a_a_ratio": {"cublas": {"median": 0.99979, "low": 0.9994, "high": 1.0001}},
    "speed": {"06": {"median": 0.98, "low": 0.97, "high": 0.99, "tflops": [800.4, 784.3]}},
}


def test_tables_show_the_values() -> None:
    text = numbers(FOUND)
    for line in (
        "2026-01-02, GPU, 132 SMs, driver 580.1; torch 2.11.",
        "| one-small | 421 | 1.0000 | wgmma | 1.5, 1.25 | 0.1, 0.2 | 0.004, 0.005 |",
        "| one-small | twice | 421 then 0 |",
        "| one-small | the plan | failed |",
        "| spin | time_limit | 5.07 | 0.85 |",
        "| cublas | 0.9998 [0.9994, 1.0001] |",
        "| 06 | 0.9800 [0.9700, 0.9900] | 784 | 800 |",
    ):
        assert line in text.splitlines()
    assert "largest RMS error 1.5000 and largest maximum error 1.250" in text
    assert "in 1 of 2; at least 90.00 %" in text


def test_filling_a_page_replaces_only_its_numbers() -> None:
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n"
    once = filled(page, FOUND)
    assert once == f"# Title\n\n{BEGIN}\n{numbers(FOUND)}{END}\n\nThe end.\n"
    assert filled(once, FOUND) == once


@pytest.mark.skipif(not RESULTS.exists(), reason="the results file has not been stored yet")
def test_the_page_agrees_with_the_results() -> None:
    page = PAGE.read_text()
    assert filled(page, json.loads(RESULTS.read_text())) == page
