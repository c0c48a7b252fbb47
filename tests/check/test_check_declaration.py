"""What a user says of a launcher, and what its source says of itself."""

from __future__ import annotations

import pytest
from check_sources import RIGHT

from ptxbench.check import adapt, evaluate, find_launcher, parse_shapes, parse_values, read_notes
from ptxbench.core import UsageError


def test_a_launcher_is_read_off_its_declaration():
    launcher = find_launcher(RIGHT, "go")
    assert launcher.returns == "void"
    kinds = [(p.name, p.kind, p.element) for p in launcher.parameters]
    assert kinds == [
        ("out", "output", "float"), ("a", "input", "__nv_bfloat16"), ("f", "scalar", ""), ("n", "size", ""),
        ("stream", "stream", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('extern "C" int launch(const float* a, int n) { return 0; }', "launch"),
        ('extern "C" cudaError_t run_it(float* a) noexcept { return cudaSuccess; }', "run_it"),
        ("// int launch(int* p) {\nint other(int n) {return 0;}\nint launch(const float *x) {return 0;}", "launch"),
    ],
)
def test_the_launcher_is_found_by_itself(source, name):
    assert find_launcher(source, "").name == name


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("int a() { return 0; }", "", "no host function with C linkage"),
        ('extern "C" int a(int n) {return 0;}\nextern "C" int b(int n) {return 0;}', "", "C linkage: a, b"),
        ("__global__ void k(float* x) {}", "k", "k is a kernel"),
        ("int launch(float** x) { return 0; }", "", "neither a pointer to elements"),
        ("int launch(const Params& p) { return 0; }", "", "neither a pointer"),
        ("int other() { return 0; }", "go", "defines no function go"),
    ],
)
def test_what_cannot_be_launched_is_said(source, name, message):
    with pytest.raises(UsageError, match=message):
        find_launcher(source, name)


def test_notes_of_a_source():
    text = "// ptxbench check: shapes A[M,K]\n// ptxbench check: sizes M=4\n//ptxbench check: shapes B[K]\n"
    notes = read_notes(text)
    assert (notes.launcher, notes.shapes, notes.sizes) == ("", "A[M,K] B[K]", "M=4")


def test_shapes_and_sizes():
    shapes = parse_shapes("A[M, K/2], B:e4m3[2*M] C[1]")
    assert shapes["A"].elements({"M": 6, "K": 8}) == 24
    assert (shapes["B"].element, shapes["B"].elements({"M": 6})) == ("e4m3", 12)
    assert parse_values("M=256, f=0.5") == {"M": 256.0, "f": 0.5}
    assert evaluate("(M + 127) / 128 * 2", {"M": 300}) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [("A[M", "cannot read"), ("A[]", "dimensions"), ("A:x7[M]", "no element type"), ("A[M] A[M]", "once")],
)
def test_shapes_that_cannot_be_read(text, message):
    with pytest.raises(UsageError, match=message):
        parse_shapes(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("M +", "cannot read"), ("N", "N in 'N' has no value"), ("M / 0", "divides by zero"), ("M.x", "cannot read"),
     ("__import__('os')", "cannot read"), ("2 ** 9", "cannot read"), ("1+" * 200 + "1", "longer")],
)  # fmt: skip
def test_expressions_that_cannot_be_read(text, message):
    with pytest.raises(UsageError, match=message):
        evaluate(text, {"M": 1})


def test_the_adapter_keeps_lines_and_passes_values():
    adapted = adapt(RIGHT, find_launcher(RIGHT, "go"), parse_shapes("a[n] out[n]"), {"n": 1000.0, "f": 0.5})
    assert adapted.source.startswith(RIGHT)
    assert "go(reinterpret_cast<float*>(out), reinterpret_cast<const bf16*>(a), " in adapted.source
    assert "static_cast<float>(0.5), static_cast<size_t>(n), stream)" in adapted.source
    assert adapted.sizes == {"out_words": 1000, "a_words": 500, "n": 1000}
    assert adapted.values == {"n": 1000}
    assert [(a.name, a.role) for a in adapted.task.inputs + adapted.task.outputs] == [("a", "input"), ("out", "output")]


def test_names_that_the_interface_needs_are_taken_from_the_source():
    source = (
        'extern "C" size_t workspace_bytes(int n) { return n; }\n'
        'extern "C" int launch(float* x, int n, void* workspace) { return 0; }\n'
    )
    adapted = adapt(source, find_launcher(source, ""), parse_shapes("x[n]"), {"n": 8.0})
    assert "launch_of_source(float* x" in adapted.source
    assert "return workspace_bytes_of_source(n);" in adapted.source
    assert "static_cast<void*>(workspace)" in adapted.source


@pytest.mark.parametrize(
    ("shapes", "values", "message"),
    [
        ("a[n]", {"n": 4.0, "f": 1.0}, "the shape of out is not known"),
        ("a[n] out[n] b[n]", {"n": 4.0, "f": 1.0}, "has no pointer b"),
        ("a[n] out[n]", {"n": 4.0}, "f of go has no value"),
        ("a[n] out[n]", {"n": 4.5, "f": 1.0}, "n of go is an integer"),
        ("a[n-4] out[n]", {"n": 4.0, "f": 1.0}, "a has 0 elements"),
    ],
)
def test_what_is_missing_is_asked_for(shapes, values, message):
    with pytest.raises(UsageError, match=message):
        adapt(RIGHT, find_launcher(RIGHT, "go"), parse_shapes(shapes), values)
