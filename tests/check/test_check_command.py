"""`ptxbench check` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from check_sources import LAUNCH, PTX, RACY, RACY_LINE, RIGHT

from ptxbench.native import Cache
from ptxbench.solutions import examples

sys.path.insert(0, str(Path(__file__).parent.parent))
from cli_program import PROGRAM, Ended, environment, run

SIZED = ("--target", "sm_90a", "--launcher", "go", "--shapes", "a[n] out[n]", "--sizes", "n=1000,f=0.5")


@pytest.fixture(scope="module")
def built(shared_cache: Cache) -> Cache:
    """The cache with our own libraries in it: building them may take longer than a command should."""
    variables = environment(shared_cache.root)
    subprocess.run([*PROGRAM, "doctor"], env=variables, check=True, capture_output=True, timeout=600)
    return shared_cache


@pytest.fixture
def check(built: Cache, tmp_path: Path):
    def command(name: str, text: str, *options: str | Path) -> Ended:
        file = tmp_path / name
        file.write_text(text)
        return run("check", file, *options, cache=built.root)

    return command


def test_a_launcher_that_is_right(check):
    ended = check("kernel.cu", RIGHT, *SIZED, "--races", "--seeds", "2")
    assert ended.code == 0, ended.err
    assert "nothing found (10 runs" in ended.out


def test_a_missing_barrier_is_found_at_its_line(check, tmp_path):
    ended = check("kernel.cu", RACY, *SIZED, "--races", "--json", "--sarif", tmp_path / "found.sarif")
    assert ended.code == 1, ended.err
    report = json.loads(ended.out)
    assert report["schema_version"] == 1
    found = {finding["kind"]: finding for finding in report["findings"]}
    assert {"uninitialised_shared_read", "schedule_dependent_result", "shared_memory_race"} <= found.keys()
    read = found["uninitialised_shared_read"]
    assert (read["severity"], read["source_line"], read["sizes"]) == ("race", RACY_LINE, {"n": 1000})
    assert len(read["under"]) == 8
    log = json.loads((tmp_path / "found.sarif").read_text())
    assert log["version"] == "2.1.0"
    (sarif_run,) = log["runs"]
    rules = sarif_run["tool"]["driver"]["rules"]
    for result in sarif_run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("kernel.cu")
    lines = {r["ruleId"]: r["locations"][0]["physicalLocation"].get("region") for r in sarif_run["results"]}
    assert lines["uninitialised_shared_read"] == {"startLine": RACY_LINE}


def test_notes_in_the_source_replace_options(check):
    notes = "".join(f"// ptxbench check: {text}\n" for text in ("launcher go", "shapes a[n] out[n]", "sizes n=300,f=2"))
    ended = check("kernel.cu", notes + RACY, "--target", "sm_90a")
    assert ended.code == 1, ended.err
    assert f"kernel.cu:{RACY_LINE + 3}: race [uninitialised_shared_read]" in ended.out
    assert "n=300" in ended.out


def test_what_does_not_compile_is_a_finding(check):
    ended = check("kernel.cu", RIGHT.replace("block[255 - t]", "blick[255 - t]"), *SIZED)
    assert ended.code == 1
    assert "error [compile_error]" in ended.out
    assert f"kernel.cu:{RACY_LINE}: " in ended.out


def test_a_candidate_of_a_task(check):
    row = next(row for row in examples() if row.file == "wrong_early_release.cu")
    ended = check(row.file, row.source(), "--task", row.task, "--target", row.target.value, "--races", "--json")
    assert ended.code == 1, ended.err
    kinds = {finding["kind"] for finding in json.loads(ended.out)["findings"]}
    assert {"schedule_dependent_result", "shared_memory_race"} <= kinds


def test_ptx_with_a_launch_beside_it(check, tmp_path):
    (tmp_path / "kernel.toml").write_text(LAUNCH)
    right = check("kernel.ptx", PTX.replace("BARRIER", "bar.sync 0;"), "--races")
    assert right.code == 0, right.out + right.err
    wrong = check("kernel.ptx", PTX.replace("BARRIER", ""), "--races", "--sizes", "N=128")
    assert wrong.code == 1, wrong.err
    line = PTX.splitlines().index("ld.shared.u32 %r8, [%r6+-4];") + 1
    assert f"kernel.ptx:{line}: race [uninitialised_shared_read]" in wrong.out
    assert "N=128" in wrong.out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("block = ", "blocks = "), "block"),
        (('out = "f32[N] out"', 'out = "f31[N] out"'), "buffer out"),
        (('{buffer = "out"}', '{buffer = "c"}'), "buffer c"),
        (("grid = [1]", "grid = ["), "is not TOML"),
        (('block = ["N"]', 'block = ["L"]'), "L in 'L' has no value"),
    ],
)
def test_a_launch_description_that_does_not_fit(check, tmp_path, change, message):
    (tmp_path / "kernel.toml").write_text(LAUNCH.replace(*change))
    ended = check("kernel.ptx", PTX.replace("BARRIER", "bar.sync 0;"))
    assert ended.code == 2
    assert message in ended.sentence


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kernel.cu", ("--launcher", "go"), "there is no target"),
        ("kernel.cu", ("--target", "sm_90a"), "name its launcher with --launcher"),
        ("kernel.cu", ("--target", "sm_90a", "--launcher", "go"), "add --shapes 'out[...] a[...]'"),
        ("kernel.cu", (*SIZED, "--task", "gemm_n7168_k5120"), "leave --launcher"),
        ("kernel.ptx", (), "there is no file"),
        ("kernel.ptx", ("--task", "gemm_n7168_k5120"), "leave --task"),
    ],
)
def test_a_request_that_cannot_be_met(check, name, options, message):
    ended = check(name, RIGHT, *options)
    assert ended.code == 2
    assert message in ended.sentence
