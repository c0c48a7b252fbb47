"""Interrupts in every phase, and two programs on one cache: a sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli_program import (
    ENDLESS_COMPILE,
    ENDLESS_KERNEL,
    ENDLESS_LAUNCHER,
    GEMM,
    Ended,
    Running,
    run,
    unfinished,
)
from ptxbench.cli.console import Interrupted, stop_on_signals
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import diagnose
from ptxbench.native import Cache
from ptxbench.solutions import examples

pytestmark = pytest.mark.xdist_group("cli_signals")

AT_ONCE_S = 5.0
"""What a loaded machine may take for what needs a fraction of a second."""


@pytest.fixture(scope="module")
def warm(shared_cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this module's own with our libraries in it, so that leftovers can be told from others' work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
        assert all(check.ok or not check.required for check in diagnose(shared_cache, lambda stage: None))
    cache = tmp_path_factory.mktemp("warm") / "cache"
    shutil.copytree(shared_cache.root / "native", cache / "native", ignore=shutil.ignore_patterns("*.tmp", "*.lock"))
    return cache


def check_stopped(ended: Ended, number: int, *folders: Path) -> None:
    assert ended.code == 2
    assert ended.out == ""
    assert ended.sentence == f"ptxbench: stopped by {signal.Signals(number).name}; nothing was left half-written"
    assert ended.seconds < AT_ONCE_S
    assert not unfinished(*folders)


@pytest.mark.parametrize(
    ("source", "stage", "number"),
    [
        (ENDLESS_COMPILE, "compiling", signal.SIGINT),
        (ENDLESS_LAUNCHER, "recording", signal.SIGTERM),
        (ENDLESS_KERNEL, "simulating", signal.SIGINT),
        (ENDLESS_KERNEL, "simulating", signal.SIGHUP),
    ],
    ids=["compile", "record", "simulate", "hang up"],
)
def test_a_signal_while_one_kernel_is_judged(
    warm: Path, tmp_path: Path, source: str, stage: str, number: int
) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(source)
    running = Running("eval", path, *GEMM, "--json", cache=warm, folder=tmp_path)
    running.wait_for(f"{stage} ...")
    check_stopped(running.end(number), number, warm, tmp_path)


@pytest.mark.parametrize("library", ["recorder", "simulator"])
def test_an_interrupt_while_our_libraries_are_built(tmp_path: Path, library: str, warm: Path) -> None:
    cache = tmp_path / "cache"
    if library == "simulator":
        shutil.copytree(warm / "native", cache / "native", ignore=shutil.ignore_patterns("*"))
        for host in (warm / "native").glob("*/recorder_host"):
            shutil.copytree(host.parent, cache / "native" / host.parent.name)
    path = tmp_path / "kernel.cu"
    path.write_text(examples()[0].source())
    running = Running("eval", path, *GEMM, cache=cache, folder=tmp_path)
    running.wait_for(f"preparing the {library}")
    check_stopped(running.end(signal.SIGINT, pause=1.0), signal.SIGINT, cache)


def test_an_interrupt_while_a_folder_is_judged_in_threads(warm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for index, source in enumerate((ENDLESS_KERNEL, ENDLESS_LAUNCHER, ENDLESS_COMPILE, ENDLESS_KERNEL)):
        (folder / f"{index}.cu").write_text(f"// {index}\n{source}")
    (folder / "nonsense.cu").write_text("no C++")
    running = Running("eval", folder, *GEMM, "--jobs", "5", "--json", cache=warm, folder=tmp_path)
    running.wait_for("nonsense.cu")
    ended = running.end(signal.SIGINT, pause=2.0)
    (line,) = ended.out.splitlines()
    assert json.loads(line)["outcome"] == "compile_error"
    check_stopped(Ended(ended.code, "", ended.err, ended.seconds), signal.SIGINT, warm, tmp_path)


def test_an_interrupt_of_the_quick_start_leaves_no_report(warm: Path, tmp_path: Path) -> None:
    running = Running("quickstart", "--jobs", "2", cache=warm, folder=tmp_path)
    running.wait_for("] ")
    check_stopped(running.end(signal.SIGINT), signal.SIGINT, warm, tmp_path)
    assert not (tmp_path / "out").exists()


def test_killed_and_begun_again(warm: Path, tmp_path: Path) -> None:
    """After kill -9 a folder goes on where it stopped: what has a verdict is not judged again."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "a.cu").write_text("no C++ // unique to the test of resuming")
    (folder / "b.cu").write_text("// resumed\n" + ENDLESS_LAUNCHER)
    first = Running("eval", folder, *GEMM, "--jobs", "1", "--json", cache=warm, folder=tmp_path)
    first.wait_for("a.cu")
    first.process.kill()
    out, _ = first.process.communicate()
    (folder / "b.cu").write_text("still no C++ // unique to the test of resuming")
    second = run("eval", folder, *GEMM, "--json", cache=warm)
    assert second.code == 1
    verdicts = {line["origin"]: line for line in map(json.loads, second.out.splitlines())}
    assert set(verdicts) == {"a.cu", "b.cu"}
    assert verdicts["a.cu"] == json.loads(out.splitlines()[0])
    third = run("eval", folder, *GEMM, "--json", "--fresh", cache=warm)
    again = {line["origin"]: line for line in map(json.loads, third.out.splitlines())}
    assert again["a.cu"]["seeds"] != verdicts["a.cu"]["seeds"]
    assert again["a.cu"]["outcome"] == verdicts["a.cu"]["outcome"]


def test_two_programs_on_one_cache(warm: Path, tmp_path: Path) -> None:
    """Both need the same artifact and plans, which only one of them makes."""
    path = tmp_path / "kernel.cu"
    path.write_text(examples()[0].source() + "// two programs\n")
    before = unfinished(warm)  # of programs that another test killed
    arguments = ("eval", path, *GEMM, "--json", "--workloads", "small")
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, *arguments, cache=warm) for _ in range(2)]
    assert [ended.result().code for ended in both] == [0, 0]
    one, other = (json.loads(ended.result().out) for ended in both)
    assert one["artifact_digest"] == other["artifact_digest"]
    assert one["plan_digest"] == other["plan_digest"]
    assert set(unfinished(warm)) <= set(before)


def test_an_interrupt_while_another_program_builds(warm: Path, tmp_path: Path) -> None:
    """Whoever waits for an entry that another program makes can be interrupted too, in threads as well."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "kernel.cu").write_text("// waited for\n" + ENDLESS_COMPILE)
    first = Running("eval", folder / "kernel.cu", *GEMM, cache=warm, folder=tmp_path)
    try:
        first.wait_for("compiling ...")
        time.sleep(0.5)
        waiting = tmp_path / "second"
        waiting.mkdir()
        second = Running("eval", folder, *GEMM, cache=warm, folder=waiting)
        second.wait_for("preparing the simulator")
        assert (ended := second.end(signal.SIGINT, pause=1.0)).code == 2
        assert ended.seconds < AT_ONCE_S
    finally:
        check_stopped(first.end(signal.SIGTERM), signal.SIGTERM, warm)


def test_only_the_first_signal_counts() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop = stop_on_signals()
        with pytest.raises(Interrupted, match="SIGTERM"):
            signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_device_takes_the_event_it_is_given() -> None:
    stop = threading.Event()
    assert SimulatorDevice(stop).stop is stop
