"""Prebuilt work for a machine that has a GPU but no compiler and no sandbox: a folder of artifacts, plans, and what the
simulator found.

One folder per case::

    case.json               name, sizes, the seed, the command that made it
    artifact.json           an `Artifact` without host library (a GPU host runs no candidate host code)
    plan.json               its `LaunchPlan`
    observation.json        the simulator's `Observation`, if it ran the case
    <buffer>.bin            the bytes of inputs, and of outputs as the simulator left them
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from ptxbench.core import Artifact, LaunchPlan, Observation, Record, UsageError, plan_problem, record_in

R = TypeVar("R", bound=Record)


class Case(Record):
    """One plan with all that a device needs. ``observation`` and ``outputs`` are the simulator's, if it ran."""

    name: str
    artifact: Artifact
    plan: LaunchPlan
    observation: Observation | None = None
    inputs: dict[str, bytes] = {}
    outputs: dict[str, bytes] = {}


def device_half(artifact: Artifact) -> Artifact:
    """The artifact without PTX and host library; its digest still names the whole."""
    return artifact.model_copy(update={"ptx": "", "host_library": b""})


def executable(artifact: Artifact) -> Artifact:
    """What an executor needs of an artifact: machine code and the facts of its kernels."""
    return artifact.model_copy(update={"ptx": "", "host_library": b"", "sass": (), "remarks": ()})


def write_bundle(folder: Path, cases: Mapping[str, Case]) -> None:
    """Writes every case into a folder of its own below ``folder``."""
    for name, case in cases.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "artifact.json").write_text(device_half(case.artifact).model_dump_json())
        (place / "plan.json").write_text(case.plan.model_dump_json())
        if case.observation is not None:
            (place / "observation.json").write_text(case.observation.model_dump_json())
        for kind, buffers in (("input", case.inputs), ("output", case.outputs)):
            for buffer, content in buffers.items():
                (place / f"{kind}.{buffer}.bin").write_bytes(content)


def read_bundle(folder: Path) -> dict[str, Case]:
    """The cases of a bundle by name. `UsageError` if the folder is none."""
    places = sorted(path.parent for path in folder.glob("*/plan.json"))
    if not places:
        raise UsageError(f"{folder} holds no prebuilt cases; write a bundle there first.")
    return {place.name: _read_case(place) for place in places}


def _read_case(place: Path) -> Case:
    observed = place / "observation.json"
    plan = _record(place / "plan.json", LaunchPlan)
    problem = plan_problem(plan)
    if problem:
        raise UsageError(f"{place / 'plan.json'} cannot be replayed: {problem}; write the bundle again.")
    return Case(
        name=place.name,
        artifact=_record(place / "artifact.json", Artifact),
        plan=plan,
        observation=_record(observed, Observation) if observed.exists() else None,
        inputs=_buffers(place, "input"),
        outputs=_buffers(place, "output"),
    )


def _record(path: Path, kind: type[R]) -> R:
    return record_in(path, kind, f"a {kind.__name__} of ours", "write the bundle again")


def _buffers(place: Path, kind: str) -> dict[str, bytes]:
    prefix = f"{kind}."
    return {path.name[len(prefix) : -len(".bin")]: path.read_bytes() for path in sorted(place.glob(f"{kind}.*.bin"))}
