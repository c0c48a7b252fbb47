"""Warm processes and kept ones, with a program that needs no GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptxbench.core import DeviceError, FaultKind
from ptxbench.devices.cuda.executors import Executors
from ptxbench.devices.cuda.process import ExecutorProcess


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executors]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pool = Executors(1, lambda: ExecutorProcess("cuda_echo"))
    yield pool
    pool.close()


def value(process: ExecutorProcess, number: int) -> int:
    answer: int = process.request("echo", 10, value=number).header["value"]
    return answer


def test_a_candidate_keeps_its_process_until_it_is_dismissed(executors: Executors) -> None:
    first = executors.of("a")
    assert executors.of("a") is first and value(first, 3) == 3
    other = executors.of("b")
    assert other is not first
    executors.dismiss("a")
    assert not first.alive and other.alive
    assert executors.of("a") is not first


def test_a_hang_costs_its_process_and_the_next_one_is_fresh(executors: Executors) -> None:
    process = executors.of("a")
    reply = process.request("run", 0.3)
    assert reply.fault is not None and reply.fault.kind is FaultKind.TIME_LIMIT
    assert not process.alive
    assert value(executors.of("a"), 4) == 4


def test_a_fresh_process_is_started_ahead(executors: Executors) -> None:
    with executors.fresh() as first:
        time.sleep(max(2.0, 2 * first.start_s))
        began = time.perf_counter()
        with executors.fresh() as second:
            waited = time.perf_counter() - began
            assert second is not first and value(second, 1) == 1
        assert waited < first.start_s / 2


def test_closing_ends_what_other_threads_wait_for(executors: Executors) -> None:
    process = executors.of("a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(process.request, "run", 50)
        time.sleep(0.3)
        executors.close()
        with pytest.raises(DeviceError, match="ended during 'run'"):
            waiting.result(10)
    with pytest.raises(DeviceError, match="closed"):
        executors.fresh()
