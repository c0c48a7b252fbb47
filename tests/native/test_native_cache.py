"""The cache on disk: one maker per key among many processes, nothing half-built, plain errors."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptxbench.core import CacheError
from ptxbench.native import Cache, default_cache_root

KEY = "k" * 64


def _fill(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "data").write_bytes(b"content")


def _entries(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "kind").iterdir() if not path.name.endswith(".lock"))


def test_builds_once_and_returns_the_same_folder(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        _fill(folder)

    cache = Cache(tmp_path)
    first, second = (cache.folder("kind", KEY, make) for _ in range(2))
    assert first == second == tmp_path / "kind" / KEY
    assert (first / "sub" / "data").read_bytes() == b"content"
    assert len(calls) == 1
    assert _entries(tmp_path) == [KEY]


def test_environment_names_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path))
    assert default_cache_root() == tmp_path
    monkeypatch.setenv("PTXBENCH_CACHE", "")
    assert default_cache_root().name == "ptxbench"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden"])
def test_a_key_is_a_plain_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        Cache(tmp_path).folder("kind", name, _fill)


@pytest.mark.parametrize("damage", ["truncate", "same_size", "delete", "extra", "manifest"])
def test_a_damaged_entry_is_rebuilt(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path)
    file = cache.folder("kind", KEY, _fill) / "sub" / "data"
    if damage == "truncate":
        file.write_bytes(b"con")
    elif damage == "same_size":
        file.write_bytes(b"c0ntent")
    elif damage == "delete":
        file.unlink()
    elif damage == "extra":
        file.with_name("more").write_bytes(b"")
    else:
        (tmp_path / "kind" / KEY / ".manifest.json").write_text("{")
    assert (cache.folder("kind", KEY, _fill) / "sub" / "data").read_bytes() == b"content"
    assert _entries(tmp_path) == [KEY]
    assert not file.with_name("more").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("maker")])
def test_a_failed_maker_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def make(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise error

    with pytest.raises(type(error)):
        Cache(tmp_path).folder("kind", KEY, make)
    assert _entries(tmp_path) == []
    assert Cache(tmp_path).folder("kind", KEY, _fill).is_dir()


def _racer(root: Path, log: Path) -> None:
    def make(folder: Path) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.1)
        _fill(folder)

    place = Cache(root).folder("kind", KEY, make)
    assert (place / "sub" / "data").read_bytes() == b"content"


def test_many_processes_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    log = tmp_path / "log"
    racers = [context.Process(target=_racer, args=(tmp_path / "cache", log)) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)
    assert [racer.exitcode for racer in racers] == [0] * 8
    assert len(log.read_text().splitlines()) == 1


def test_a_killed_holder_leaves_neither_lock_nor_half_entry(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib; from ptxbench.native import Cache\n"
        "def make(folder):\n"
        "    (folder / 'half').write_bytes(b'x'); print('building', flush=True); time.sleep(60)\n"
        f"Cache(pathlib.Path(sys.argv[1])).folder('kind', {KEY!r}, make)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"building\n"
        holder.send_signal(signal.SIGKILL)
    place = Cache(tmp_path).folder("kind", KEY, _fill)
    assert sorted(path.name for path in place.iterdir()) == [".manifest.json", "sub"]
    assert _entries(tmp_path) == [KEY]


def test_an_interrupted_process_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib; from ptxbench.native import Cache\n"
        "def make(folder):\n"
        "    (folder / 'half').write_bytes(b'x'); print('building', flush=True); time.sleep(60)\n"
        f"Cache(pathlib.Path(sys.argv[1])).folder('kind', {KEY!r}, make)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.send_signal(signal.SIGINT)
    assert _entries(tmp_path) == []


def test_a_place_that_is_no_folder_is_a_cache_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="PTXBENCH_CACHE"):
        Cache(tmp_path / "file").folder("kind", KEY, _fill)


def test_a_read_only_place_is_a_cache_error(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="PTXBENCH_CACHE"):
        Cache(Path("/proc/ptxbench-cache")).folder("kind", KEY, _fill)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_finished_entry_is_readable_from_a_read_only_cache(tmp_path: Path) -> None:
    place = Cache(tmp_path).folder("kind", KEY, _fill)
    (tmp_path / "kind").chmod(0o555)
    try:
        assert Cache(tmp_path).folder("kind", KEY, _fill) == place
        with pytest.raises(CacheError, match="permission denied"):
            Cache(tmp_path).folder("kind", "other", _fill)
    finally:
        (tmp_path / "kind").chmod(0o755)


def test_a_file_system_without_room_is_a_cache_error(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CacheError, match="free space"):
            Cache(tmp_path).folder("kind", KEY, lambda folder: (folder / "big").write_bytes(bytes(8192)) and None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert _entries(tmp_path) == []


def test_an_error_of_the_maker_that_is_not_the_storage_passes_through(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", "/elsewhere")

    with pytest.raises(PermissionError):
        Cache(tmp_path).folder("kind", KEY, make)
