"""Tasks for agents outside of this program: a plain folder, and the task format of the Harbor framework.

Format: https://www.harborframework.com/docs/tasks (schema 1.4; read by Harbor 0.26).
"""

from __future__ import annotations

import shlex
import sys
from importlib import resources
from pathlib import Path

import jinja2

import ptxbench
from ptxbench.core import Task, UsageError
from ptxbench.prompts import Prompt
from ptxbench.store import write_atomically

INSTRUCTIONS = "INSTRUCTIONS.md"
KERNEL = "kernel.cu"
_EXECUTABLE = 0o755


def write_task_folder(folder: Path, prompt: Prompt) -> None:
    """Lays out what an agent is given: the instructions, and `judge`, which runs `ptxbench eval` on its kernel."""
    program = shlex.join([sys.executable, "-m", "ptxbench"])
    _write(folder / INSTRUCTIONS, instructions(prompt))
    _write(folder / "judge", _render("judge", prompt, program=program), _EXECUTABLE)


def write_harbor_task(
    folder: Path, task: Task, prompt: Prompt, *, package: Path, solution: str | None, agent_seconds: int
) -> None:
    """Writes one task in Harbor's format.

    ``package`` is the wheel of PTXBench that the image installs, ``solution`` the source of a kernel that is known to
    be right (Harbor's oracle hands it in), None if there is none. Raises `UsageError` if the wheel cannot be read.
    """
    try:
        wheel = package.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {package}: {error.strerror}; give the wheel of PTXBench") from error
    if package.suffix != ".whl":
        raise UsageError(f"{package} is no wheel; build one with `pip wheel --no-deps .`")
    name = f"{task.name}-{prompt.target}"
    settings = _render(
        "task.toml", prompt, name=name, title=task.title, version=ptxbench.__version__, condition=prompt.condition,
        digest=prompt.digest, agent_seconds=float(agent_seconds),
    )  # fmt: skip
    _write(folder / "task.toml", settings)
    _write(folder / "instruction.md", instructions(prompt))
    _write(folder / "environment" / "Dockerfile", _render("Dockerfile", prompt, package=package.name))
    _write(folder / "environment" / "judge", _render("judge", prompt, program="ptxbench"), _EXECUTABLE)
    write_atomically(folder / "environment" / package.name, wheel)
    _write(folder / "tests" / "test.sh", _render("test.sh", prompt), _EXECUTABLE)
    if solution is not None:
        _write(folder / "solution" / KERNEL, solution)
        _write(folder / "solution" / "solve.sh", f"#!/bin/sh\ncp /solution/{KERNEL} /app/{KERNEL}\n", _EXECUTABLE)


def instructions(prompt: Prompt) -> str:
    """Both messages of a prompt as one document."""
    return f"{prompt.system}\n{prompt.user}"


def _render(file: str, prompt: Prompt, **values: object) -> str:
    template = (resources.files("ptxbench.runners") / "harbor" / f"{file}.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(template).render(task=prompt.task, target=prompt.target.value, **values)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    write_atomically(path, text.encode())
    path.chmod(mode)
