"""A bundle of oracle kernels for a GPU host: artifacts and plans, and arrays that are stored once, by their digest."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from ptxbench.core import Artifact, LaunchPlan, Observation, Record
from ptxbench.devices.cuda import Case, read_bundle, write_bundle

Array = np.ndarray
_ARRAYS, _CONTENTS = "arrays", "contents.json"


@dataclass(frozen=True)
class Output:
    """One output: as the simulator left it, the truth, and the largest error that is allowed of each element."""

    simulated: Array
    truth: Array
    allowed: Array


@dataclass(frozen=True)
class SiliconCase:
    """One plan with its inputs, and what the simulator made of it."""

    artifact: Artifact
    plan: LaunchPlan
    observation: Observation
    inputs: Mapping[str, bytes]
    outputs: Mapping[str, Output]


class _Stored(Record):
    """An array: NumPy's name of its type, its shape, the digest of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    digest: str


class _Contents(Record):
    inputs: dict[str, _Stored]
    outputs: dict[str, dict[str, _Stored]]


def write_case(folder: Path, name: str, case: SiliconCase) -> None:
    """Adds a case to the bundle in ``folder``. Of machine code, opcodes and first registers are kept."""
    bare = case.artifact.model_copy(update={"sass": tuple(
        kernel.model_copy(update={"instructions": tuple(
            one.model_copy(update={"frames": (), "operands": one.operands[:2]}) for one in kernel.instructions
        )})
        for kernel in case.artifact.sass
    )})  # fmt: skip
    write_bundle(folder, {name: Case(name=name, artifact=bare, plan=case.plan, observation=case.observation)})
    inputs = {key: _store(folder, np.frombuffer(content, np.uint8)) for key, content in case.inputs.items()}
    outputs = {
        key: {
            "simulated": _store(folder, output.simulated), "truth": _store(folder, output.truth.astype(np.float32)),
            "allowed": _store(folder, output.allowed.astype(ml_dtypes.bfloat16)),
        }
        for key, output in case.outputs.items()
    }  # fmt: skip
    (folder / name / _CONTENTS).write_text(_Contents(inputs=inputs, outputs=outputs).model_dump_json())


def read_cases(folder: Path) -> dict[str, SiliconCase]:
    """The cases of a bundle by name; `UsageError` if there is none."""
    found: dict[str, SiliconCase] = {}
    for name, case in read_bundle(folder).items():
        contents = _Contents.model_validate_json((folder / name / _CONTENTS).read_bytes())
        assert case.observation is not None
        found[name] = SiliconCase(
            case.artifact, case.plan, case.observation,
            {key: _load(folder, stored).tobytes() for key, stored in contents.inputs.items()},
            {key: Output(**{part: _load(folder, stored) for part, stored in parts.items()})
             for key, parts in contents.outputs.items()},
        )  # fmt: skip
    return found


def _store(folder: Path, array: Array) -> _Stored:
    content = np.ascontiguousarray(array).tobytes()
    digest = hashlib.sha256(content).hexdigest()
    place = folder / _ARRAYS / f"{digest}.bin"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(zlib.compress(content))
    return _Stored(dtype=array.dtype.name, shape=array.shape, digest=digest)


def _load(folder: Path, stored: _Stored) -> Array:
    content = zlib.decompress((folder / _ARRAYS / f"{stored.digest}.bin").read_bytes())
    return np.frombuffer(content, np.dtype(stored.dtype)).reshape(stored.shape)
