"""What a program in the sandbox can see, do and use up. The same programs run at both levels where both protect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.build import CHANNEL, Completed, Limits, Mount, Sandbox, find_sandbox
from ptxbench.build.seccomp import DENIED
from ptxbench.core import SandboxError

SMALL = Limits(seconds=5, memory=256 << 20, disk=8 << 20, output=1 << 20, text=1 << 16, processes=24)


@pytest.fixture(scope="module", params=["full", "weak"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    found = find_sandbox()
    if request.param == "full":
        if found.level != "full":
            pytest.skip(found.why)
        return found
    return Sandbox("weak", "asked for by the test")


@pytest.fixture(scope="module")
def strong() -> Sandbox:
    found = find_sandbox()
    if found.level != "full":
        pytest.skip(found.why)
    return found


def shell(sandbox: Sandbox, command: str, limits: Limits = SMALL, **more: object) -> Completed:
    return sandbox.run(["/bin/bash", "-c", command], limits=limits, **more)  # type: ignore[arg-type]


def test_inputs_outputs_stdin_and_channel(sandbox: Sandbox) -> None:
    done = shell(
        sandbox, f"cat; cat data > copy; : > empty; ln -s copy link; echo answer >&${CHANNEL}; echo e >&2; exit 3",
        inputs={"data": b"\x00\xff"}, outputs=["copy", "empty", "link", "missing"], stdin=b"typed", channel=True,
    )
    assert (done.cause, done.returncode) == ("exited", 3)
    assert (done.stdout, done.stderr) == (b"typed", b"e\n")
    assert done.outputs == {"copy": b"\x00\xff", "empty": b""}
    assert done.channel == b"answer\n"


def test_the_environment_is_ours(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent.so")
    done = shell(sandbox, "env", environment={"EXTRA": "1"})
    names = {line.split("=")[0] for line in done.stdout.decode().splitlines()}
    assert names <= {"PATH", "LC_ALL", "TMPDIR", "EXTRA", "PWD", "SHLVL", "_", "OLDPWD"}
    assert b"EXTRA=1" in done.stdout


def test_no_files_of_the_host(strong: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("secret")
    folders = f"{Path.home()} /home /root /proc /sys /tmp /var"
    done = shell(strong, f"cat /etc/passwd {tmp_path}/private; ls -d {folders}; ls /dev /etc")
    assert b"secret" not in done.stdout
    assert b"root:" not in done.stdout
    assert set(done.stdout.split()) <= {b"/dev:", b"null", b"/etc:", b"alternatives", b"ld.so.cache"}


def test_only_named_paths_are_visible_and_read_only(strong: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "shown").write_text("text")
    done = shell(
        strong, f"cat {tmp_path}/shown /moved/shown; for f in {tmp_path}/new /usr/new /new ok; do echo x > $f; done",
        read_only=[tmp_path, Mount(tmp_path, "/moved")], outputs=["ok"],
    )
    assert done.stdout == b"texttext"
    assert done.stderr.count(b"Read-only file system") == 3
    assert done.outputs == {"ok": b"x\n"}
    assert not (tmp_path / "new").exists()


def test_no_network(sandbox: Sandbox) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        done = shell(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
    assert b"connected" not in done.stdout


def test_no_new_namespaces_and_no_mounts(sandbox: Sandbox) -> None:
    done = shell(sandbox, "unshare -Ur true || unshare -n true || mount -t tmpfs none . || echo refused")
    assert done.stdout == b"refused\n"


def test_time_limit(sandbox: Sandbox) -> None:
    begin = time.monotonic()
    done = shell(sandbox, "sleep 30 & sleep 30", Limits(seconds=0.5))
    assert done.cause == "time"
    assert time.monotonic() - begin < 3


def test_memory_limit(sandbox: Sandbox) -> None:
    done = shell(sandbox, "x=aaaaaaaa; while true; do x=$x$x; done")
    assert done.cause == "memory"


def test_memory_limit_counts_all_processes(strong: Sandbox) -> None:
    grow = "x=aaaaaaaa; for j in {1..14}; do x=$x$x$x; [ ${#x} -gt 20000000 ] && break; done; sleep 4"
    done = shell(strong, f"for i in 1 2 3 4 5 6; do ( {grow} ) & done; wait", Limits(seconds=5, memory=160 << 20))
    assert done.cause == "memory"


def test_process_limit(sandbox: Sandbox) -> None:
    done = shell(sandbox, "for i in {1..60}; do sleep 4 & done; wait", Limits(seconds=4, processes=24))
    assert done.cause == "processes"


def test_no_process_at_all(sandbox: Sandbox) -> None:
    done = shell(sandbox, "(echo child); echo after", Limits(seconds=5, processes=1))
    assert b"child" not in done.stdout
    assert b"Operation not permitted" in done.stderr
    with pytest.raises(ValueError, match="channel"):
        shell(sandbox, "true", Limits(processes=1), outputs=["x"])


def test_giant_text_is_cut_and_the_program_goes_on(sandbox: Sandbox) -> None:
    done = shell(sandbox, "head -c 5000000 /usr/bin/bash /usr/bin/bash /usr/bin/bash; echo end >&2")
    assert done.cause == "exited"
    assert len(done.stdout) == SMALL.text
    assert done.stderr == b"end\n"


def test_giant_outputs_end_the_run(strong: Sandbox) -> None:
    limits = Limits(seconds=5, disk=8 << 20, output=1 << 20)
    assert shell(strong, "yes > big", limits, outputs=["big"]).cause == "output"
    assert shell(strong, f"yes >&${CHANNEL}", limits, channel=True).cause == "output"


def test_the_work_folder_has_a_size(strong: Sandbox) -> None:
    done = shell(strong, "for i in 1 2 3 4; do head -c 900000 /usr/bin/bash > f$i; done", Limits(disk=2 << 20))
    assert done.stderr.count(b"No space left") == 2


def test_a_signal_is_reported(sandbox: Sandbox) -> None:
    done = shell(sandbox, "kill -SEGV $$")
    assert (done.cause, done.returncode) == ("signal", 128 + 11)


def test_a_missing_program(sandbox: Sandbox) -> None:
    assert sandbox.run(["/nonexistent"]).returncode == 127


def test_an_unusable_sandbox_is_an_infrastructure_error(tmp_path: Path) -> None:
    (broken := tmp_path / "bwrap").write_text("#!/bin/sh\necho 'no namespaces here' >&2; exit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxError, match="no namespaces here"):
        Sandbox("full", bwrap=broken).run(["/bin/true"])
    with pytest.raises(SandboxError, match="could not be started"):
        Sandbox("full", bwrap=tmp_path / "missing").run(["/bin/true"])


def _syscall_numbers() -> Iterator[tuple[str, int]]:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    for line in header.read_text().splitlines() if header.exists() else ():
        if line.startswith("#define __NR_"):
            _, name, number = line.split()
            yield name.removeprefix("__NR_"), int(number)


def test_the_filter_denies_what_it_names() -> None:
    known = dict(_syscall_numbers())
    if not known:
        pytest.skip("no kernel headers here")
    assert {name: known.get(name, number) for name, number in DENIED.items()} == DENIED


def test_denied_calls_fail_and_new_clone_is_absent(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "calls.c"
    numbers = [101, 321, 323, 298, 250, 272, 308, 425, 319, 41]
    source.write_text(
        "#include <stdio.h>\n#include <errno.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n"
        f"int main() {{ long n[] = {{{', '.join(map(str, numbers))}}};\n"
        "for (unsigned i = 0; i < sizeof n / sizeof *n; ++i) { errno = 0; syscall(n[i], 0, 0, 0, 0, 0);"
        ' printf("%d ", errno); }\n errno = 0; syscall(435, 0, 0); printf("%d\\n", errno); }\n'
    )
    subprocess.run(["gcc", str(source), "-o", str(tmp_path / "calls")], check=True)
    done = sandbox.run([str(tmp_path / "calls")], read_only=[tmp_path])
    assert done.stdout.split() == [b"1"] * len(numbers) + [b"38"]


def test_only_the_channel_is_inherited(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "descriptors.c"
    source.write_text(
        "#include <stdio.h>\n#include <fcntl.h>\n"
        'int main() { for (int i = 0; i < 200; ++i) if (fcntl(i, F_GETFD) != -1) printf("%d ", i); }\n'
    )
    subprocess.run(["gcc", str(source), "-o", str(tmp_path / "descriptors")], check=True)
    program = [str(tmp_path / "descriptors")]
    assert sandbox.run(program, read_only=[tmp_path], inputs={"a": b"1"}, outputs=["b"]).stdout == b"0 1 2 "
    with_channel = sandbox.run(program, read_only=[tmp_path], inputs={"a": b"1"}, channel=True)
    assert len(with_channel.stdout.split()) == 4


def test_a_host_without_namespaces_gives_the_weak_level_and_says_why() -> None:
    script = "from ptxbench.build import find_sandbox; s = find_sandbox(); print(s.level, '|', s.why)"
    command = f'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "{script}"'
    done = subprocess.run(
        ["unshare", "-Ur", "/bin/sh", "-c", command, sys.executable], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("no user namespace here to take namespaces away in")
    assert done.stdout.startswith("weak | This host refuses the namespaces")


def test_an_interrupt_leaves_no_process(strong: Sandbox) -> None:
    begin = time.monotonic()
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(KeyboardInterrupt):
        shell(strong, "exec -a ptxbench-sandbox-test sleep 77")
    assert time.monotonic() - begin < 3
    time.sleep(0.1)
    lines = [Path(entry.path, "cmdline") for entry in os.scandir("/proc") if entry.name.isdigit()]
    assert not any(b"ptxbench-sandbox-test" in line.read_bytes() for line in lines if line.exists())
