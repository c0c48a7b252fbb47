"""Whole kernels of scalar code, compiled by nvcc, executed and recomputed here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_nvcc import HERE, compile_ptx

from ptxbench.core import Target
from ptxbench.simulator import Program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    text = compile_ptx(HERE / "run_scalar.cu", Target.SM_90A, tmp_path_factory.mktemp("ptx"))
    return load(text, ["calls", "control", "wide", "functions"])


def test_calls_are_inlined_and_diverge(program: Program) -> None:
    data = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    expected = data.copy()
    for i in range(64):
        if i % 3 == 0:
            continue
        x, n = data[i], 1
        for count in (i % 7, i % 7 & 3):
            for k in range(count):
                x = np.float32(x * np.float32(0.5) + np.float32(k))
            n += count
        expected[i] = x + np.float32(n)
    seen = run(program, Launch("calls", ["data"], block=(64, 1, 1)), data=data)
    assert seen.fault is None
    np.testing.assert_array_equal(data, expected)


def test_a_failed_assertion_traps(program: Program) -> None:
    data = np.full(64, -np.inf, np.float32)
    seen = run(program, Launch("calls", ["data"], block=(64, 1, 1)), data=data)
    assert seen.fault is not None
    assert seen.fault.kind == "trap"


def test_switches_arrays_and_constants(program: Program) -> None:
    data = np.random.default_rng(2).integers(0, 1000, 64, dtype=np.int32)
    n = 21
    ys = []
    for i, x in enumerate(data.tolist()):
        local = [int(data[(i + k) % 64]) * k for k in range(8)]
        cases = [n + 1, n * 3, n - 7, n ^ 9, local[x & 7], (3, 1, 4, 1, 5)[x % 5], -n]
        ys.append(cases[x % 7])
    expected = [(ys[63 - (i ^ 1)] & 255) + ys[i] + (100, 200)[i & 1] for i in range(64)]
    seen = run(program, Launch("control", ["data", n], block=(64, 1, 1), shared=64), data=data)
    assert seen.fault is None
    assert data.tolist() == expected


def test_wide_integers(program: Program) -> None:
    a = np.random.default_rng(3).integers(0, 2**64, 64, dtype=np.uint64)
    out = np.zeros(64, np.uint64)
    seen = run(program, Launch("wide", ["in_a", "out"], block=(64, 1, 1)), in_a=a, out=out)
    assert seen.fault is None
    v = [int(x) for x in a]
    for i in range(64):
        product = v[i] * v[(i + 1) % 64] + v[(i + 2) % 64]
        expected = product >> 64 ^ product & (2**64 - 1) ^ v[i] // (v[(i + 3) % 64] | 1) ^ v[i] % 1000003
        assert int(out[i]) == expected & (2**64 - 1)


def test_library_functions(program: Program) -> None:
    a = (np.random.default_rng(4).standard_normal(64) * 3).astype(np.float32)
    out = np.zeros(64, np.float32)
    seen = run(program, Launch("functions", ["in_a", "out"], block=(64, 1, 1)), in_a=a, out=out)
    assert seen.fault is None
    for x, got in zip(a.astype(np.float64), out, strict=True):
        expected = (
            math.sin(x) + math.exp(x) * math.log(abs(x) + 1) + math.tanh(x) + abs(x) ** 1.5 + math.erf(x)
            + math.fmod(x, float(np.float32(0.7))) + math.copysign(abs(x) ** (1 / 3), x)
        )  # fmt: skip
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-5)
