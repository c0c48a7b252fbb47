"""Our own C++ is compiled once per content, flags, compiler and CPU."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from ptxbench.core import ToolchainError
from ptxbench.native import Cache, build_library


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    (tmp_path / "value.hpp").write_text("constexpr int value = 41;\n")
    main = '#include "value.hpp"\nint one();\nextern "C" int answer() { return value + one(); }\n'
    (tmp_path / "a.cpp").write_text(main)
    (tmp_path / "b.cpp").write_text("int one() { return 1; }\n")
    return [tmp_path / "a.cpp", tmp_path / "b.cpp"]


def test_builds_a_library_and_finds_it_again(tmp_path: Path, sources: list[Path]) -> None:
    cache, header = Cache(tmp_path / "cache"), [tmp_path / "value.hpp"]
    library = build_library("answer", sources, headers=header, cache=cache)
    assert library.name == "libanswer.so"
    assert ctypes.CDLL(str(library)).answer() == 42
    assert sorted(path.name for path in library.parent.iterdir()) == [".manifest.json", "libanswer.so"]
    assert build_library("answer", sources, headers=header, cache=cache) == library


@pytest.mark.parametrize("change", ["source", "header", "flags", "link"])
def test_every_input_is_part_of_the_key(tmp_path: Path, sources: list[Path], change: str) -> None:
    cache, header = Cache(tmp_path / "cache"), tmp_path / "value.hpp"
    before = build_library("answer", sources, headers=[header], cache=cache)
    if change == "source":
        sources[1].write_text("int one() { return 2; }\n")
    elif change == "header":
        header.write_text("constexpr int value = 40;\n")
    flags = ["-DOTHER"] if change == "flags" else []
    link = ["-lm"] if change == "link" else []
    assert build_library("answer", sources, headers=[header], flags=flags, link=link, cache=cache) != before


def test_builds_a_program(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text("int main() { return 7; }\n")
    program = build_library("seven", [tmp_path / "main.cpp"], executable=True, cache=Cache(tmp_path / "cache"))
    assert subprocess.run([program], check=False).returncode == 7


def test_a_source_that_does_not_compile_names_the_error(tmp_path: Path) -> None:
    (tmp_path / "bad.cpp").write_text("int f( { }\n")
    with pytest.raises(ToolchainError, match=r"compile bad\.cpp.*error"):
        build_library("bad", [tmp_path / "bad.cpp"], cache=Cache(tmp_path / "cache"))
    assert not list((tmp_path / "cache" / "native").glob("*/"))


def test_a_program_that_does_not_link_names_the_cause(tmp_path: Path) -> None:
    (tmp_path / "lost.cpp").write_text("int elsewhere(); int main() { return elsewhere(); }\n")
    with pytest.raises(ToolchainError, match=r"link lost .*elsewhere"):
        build_library("lost", [tmp_path / "lost.cpp"], executable=True, cache=Cache(tmp_path / "cache"))


def test_a_missing_compiler_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sources: list[Path]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"apt-get install g\+\+"):
        build_library("answer", sources, cache=Cache(tmp_path / "cache"))


def test_the_users_environment_does_not_reach_the_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sources: list[Path]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "stdio.h").write_text("#error the environment was used\n")
    monkeypatch.setenv("CPATH", str(tmp_path / "other"))
    monkeypatch.setenv("CXX", "/nonexistent")
    (tmp_path / "c.cpp").write_text('#include <stdio.h>\nextern "C" int c() { return 3; }\n')
    library = build_library("c", [tmp_path / "c.cpp"], cache=Cache(tmp_path / "cache"))
    assert ctypes.CDLL(os.fspath(library)).c() == 3
