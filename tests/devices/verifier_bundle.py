"""Makes what the verifier's check on a GPU host needs: ``python tests/devices/verifier_bundle.py FOLDER``.

The verifier's kernels as ``verifier.cubin``, and the known-good kernels with their plans at the core sizes, each as a
case ``<task>--<solution>``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cuda_bundle import built

import ptxbench
from ptxbench.build import find_toolchain
from ptxbench.core import Target
from ptxbench.devices.cuda import Case, write_bundle
from ptxbench.devices.cuda.verifier import verifier_cubin
from ptxbench.solutions import solutions
from ptxbench.tasks import get_task

ROOT = Path(ptxbench.__file__).parent / "solutions"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = find_toolchain().cuda / "bin" / "nvcc"
    shutil.copyfile(verifier_cubin(nvcc, Target.SM_90A), folder / "verifier.cubin")
    for solution in solutions(target=Target.SM_90A):
        task = get_task(solution.task)
        name = f"{task.name}--{Path(solution.file).stem}"
        artifact, plans = built(ROOT / solution.file, task, {name: task.of_tier("core")[0].sizes})
        write_bundle(folder, {name: Case(name=name, artifact=artifact, plan=plans[name])})
        print(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
