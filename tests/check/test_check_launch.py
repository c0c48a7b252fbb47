"""Launch descriptions written by hand: each makes a plan, or ends in one sentence that says what to change."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from check_sources import LAUNCH, PTX
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxbench.check import Check, Report
from ptxbench.cli.check import check_ptx
from ptxbench.core import PtxbenchError, Schedule, UsageError
from ptxbench.devices import SimulatorDevice

KERNEL = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .f32 f)
{
.reg .b64 %rd<4>;
.reg .f32 %f<2>;
ld.param.u64 %rd1, [out];
ld.param.f32 %f1, [f];
st.global.f32 [%rd1], %f1;
ret;
}
"""
WHOLE: dict[str, Any] = {
    "kernel": "k", "grid": [2], "block": ["N / 2"], "cluster": [1], "shared": "N * 4", "registers": 64,
    "parameters": [
        {"map": "a", "box": [64, 8], "dims": ["K", "N"], "swizzle": "128b"}, {"buffer": "out", "offset": 16},
        {"value": 0.5, "type": "f32"},
    ],
    "sizes": {"N": 64, "K": 128}, "buffers": {"a": "bf16[N,K] in", "out": "f32[N] out"},
}  # fmt: skip


def toml_of(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_of(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_of(inner) for inner in value) + "]"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value)


def described(**changes: Any) -> str:
    return "".join(f"{key} = {toml_of(value)}\n" for key, value in (WHOLE | changes).items())


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("launch")
    check = Check(SimulatorDevice(threading.Event()), (Schedule(),), False, 100_000, 10.0, lambda stage: None)

    def run(launch: str | bytes, ptx: str = KERNEL) -> Report:
        kernel, file = folder / "kernel.ptx", folder / "kernel.toml"
        kernel.write_text(ptx)
        file.write_bytes(launch.encode() if isinstance(launch, str) else launch)
        return check_ptx(check, kernel, None, "")

    return run


def parameters(number: int, **changes: Any) -> str:
    listed = [dict(parameter) for parameter in WHOLE["parameters"]]
    listed[number] |= changes
    return described(parameters=listed)


def test_the_descriptions_before_any_change_are_right(checked) -> None:
    assert checked(described()).findings == ()
    assert checked(LAUNCH, PTX.replace("BARRIER", "bar.sync 0;")).findings == ()


@pytest.mark.parametrize(("launch", "said"), [
    (described(grid=[-1]), "the launch of k is none (node 0: its grid is (-1, 1, 1)); correct the numbers in its TOML"),
    (described(shared=-1), "its dynamic shared memory has -1 bytes"),
    (described(cluster=[1 << 40]), "its cluster is (1099511627776, 1, 1)"),
    (described(sizes={"N": -64, "K": 128}), "sizes.N: Input should be greater than or equal to 0"),
    (described(sizes={"N": 1 << 31, "K": 128}), "sizes.N: Input should be less than or equal to 2147483647"),
    (described(sizes={"N": 0, "K": 128}), "a has 0 elements at these sizes"),
    (described(sizes={"N": 1 << 30, "K": 1 << 30}), "the buffers have more than 8589934588 bytes at these sizes"),
    (described(buffers={"a b": "bf16[N] in"}), "'a b' is no name of a buffer"),
    (described(buffers={"a[1] b": "bf16[N] in"}), "'a[1] b' is no name of a buffer"),
    (described(buffers=WHOLE["buffers"] | {"out": "f32[N] inout"}), "write TYPE[DIM,...] in, out or workspace"),
    (described(parameters=WHOLE["parameters"][:2]), "are 136 bytes, and k takes 140; list every parameter"),
    (described(parameters=[*WHOLE["parameters"], {"value": 1}]), "are 144 bytes, and k takes 140"),
    (described(parameters=[{"texture": "a"}]), "parameters.0"),
    (parameters(0, box=[64]), "the map of a (dimensions [128, 64], box [64], innermost first) is invalid: its arrays"),
    (parameters(0, box=[64, 0]), "box extent 1 is 0, and must be 1 to 256"),
    (parameters(0, box=[128, 8]), "the inner box is 256 bytes, and swizzle 128b allows 128"),
    (parameters(0, box=[4, 8]), "the inner box is 8 bytes, and must be a multiple of 16"),
    (parameters(0, dims=["K + 4", "N"]), "the stride of dimension 1 is 264 bytes, and must be a multiple of 16"),
    (parameters(0, dims=["K", "2 * N"]), "reaches to byte 32768 of 16384; give dimensions that lie in the buffer"),
    (parameters(0, dims=["K", "0 - N"]), "dimension 1 is -64, and must be 1 to 2^32"),
    (parameters(0, dims=[1] * 6, box=[1] * 6), "its arrays do not fit its rank"),
    (parameters(0, map="out", swizzle="256b"), "parameters.0"),
    (parameters(1, offset=257), "the offset 257 is outside of out, which has 256 bytes"),
    (parameters(1, offset=-4), "the offset -4 is outside of out"),
    (parameters(1, buffer="b"), "a parameter names buffer b, which [buffers] does not have"),
    (parameters(2, value=1e300), "the parameter 1e+300 does not fit into f32"),
    (parameters(2, type="s32", value=float("nan")), "the parameter nan does not fit into s32"),
    (parameters(2, type="u32", value=-1), "does not fit into u32"),
    (described(sizes={}) + "[sizes]\nN = 1\n", "is not TOML"),
    ("grid = [" + "9" * 5000 + "]", "is not TOML"),
    ("grid = " + "[" * 5000, "is not TOML"),
    (b"grid = [\xff]", "is not TOML"),
])  # fmt: skip
def test_what_does_not_fit_is_named(checked, launch: str | bytes, said: str) -> None:
    with pytest.raises(UsageError) as error:
        checked(launch)
    assert said in str(error.value)
    assert "\n" not in str(error.value).split("is not TOML")[0]


@pytest.mark.parametrize(("launch", "said"), [
    (described(grid=[0]), "grid (0, 1, 1) is not possible"),
    (described(grid=[3], cluster=[2]), "grid (3, 1, 1) is not a multiple of cluster (2, 1, 1)"),
    (described(cluster=[0]), "cluster (0, 1, 1) is not one of 1 to 8 CTAs"),
    (described(block=[2048]), "block (2048, 1, 1) is not possible"),
    (described(shared=300 << 10), "307200 bytes of shared memory exceed the limit of 232448"),
])  # fmt: skip
def test_what_the_target_would_refuse_is_a_finding(checked, launch: str, said: str) -> None:
    (finding,) = checked(launch).findings
    assert (finding.severity, finding.kind) == ("error", "impossible_launch")
    assert said in finding.message


NUMBERS = st.one_of(
    st.sampled_from([-1, 0, 1, 3, 7, 16, 64, 255, 256, 257, 1024, 1 << 31, 1 << 32, 1 << 40, 1 << 63, 1 << 64]),
    st.integers(-1 << 66, 1 << 66), st.floats(),
)  # fmt: skip
TEXTS = st.sampled_from([
    "", "N", "N * K", "N / 0", "K - N", "N % 3", "M", "2 ** 9", "((((", "f32[N] out", "f32[0] in", "b128[N] workspace",
    "bf16[N,K] in", "f64[N * N * N] in", "x[N] in", "none", "32b", "128b", "f32", "u64", "k", "a", "out", "9" * 150,
])  # fmt: skip
KEYS = st.sampled_from(["map", "box", "dims", "buffer", "offset", "value", "type", "a", "out", "N"])
VALUES = st.recursive(
    st.one_of(NUMBERS, TEXTS, st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(KEYS, inner)),
    max_leaves=8,
)
FUZZED = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ends_well(checked, launch: str | bytes) -> bool:
    try:
        return isinstance(checked(launch), Report)
    except PtxbenchError as error:
        return bool(str(error))


@FUZZED
@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), VALUES, min_size=1, max_size=3))
def test_any_values_end_in_a_report_or_one_sentence(checked, changes: dict[str, Any]) -> None:
    assert ends_well(checked, described(**changes))


@FUZZED
@given(st.sampled_from([0, 1, 2]), st.dictionaries(st.sampled_from(["map", "box", "dims", "swizzle", "buffer", "offset",
       "value", "type"]), VALUES, min_size=1, max_size=2))  # fmt: skip
def test_any_parameter_ends_in_a_report_or_one_sentence(checked, number: int, changes: dict[str, Any]) -> None:
    assert ends_well(checked, parameters(number, **changes))


@FUZZED
@given(st.integers(0, len(described())), st.integers(0, 12), st.one_of(TEXTS.map(str.encode), st.binary(max_size=6)))
def test_any_text_ends_in_a_report_or_one_sentence(checked, at: int, length: int, new: bytes) -> None:
    text = described().encode()
    assert ends_well(checked, text[:at] + new + text[at + length :])


def test_a_file_that_cannot_be_read_is_named(checked, tmp_path: Path) -> None:
    check = Check(SimulatorDevice(threading.Event()), (Schedule(),), False, 1, 1.0, lambda stage: None)
    with pytest.raises(UsageError, match="there is no file"):
        kernel = tmp_path / "kernel.ptx"
        kernel.write_text(KERNEL)
        check_ptx(check, kernel, None, "")
