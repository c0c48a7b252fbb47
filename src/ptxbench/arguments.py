"""What the command line's options may say, and the sentence for what they may not."""

from __future__ import annotations

from ptxbench.core import Target, Task, Tier, UsageError
from ptxbench.tasks import sizes_problem

_LARGEST_SIZE = 2**31 - 1  # sizes are ints of the launcher


def parse_target(name: str) -> Target:
    """A target by name; `UsageError` lists the known ones."""
    try:
        return Target(name)
    except ValueError:
        known = " or ".join(target.value for target in Target)
        raise UsageError(f"there is no target {name!r}; --target takes {known}") from None


def check_device(name: str) -> None:
    """`UsageError` unless this version can judge on that device; ``auto`` is the simulator."""
    if name == "cuda":
        raise UsageError("this version judges on the simulator only; use --device sim")
    if name not in ("sim", "auto"):
        raise UsageError(f"there is no device {name!r}; --device takes sim, cuda or auto")


def parse_tiers(text: str) -> tuple[Tier, ...]:
    """Tiers from a comma-separated list; `UsageError` on anything the simulator cannot run."""
    tiers: dict[str, Tier] = {"small": "small", "heldout": "heldout"}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in tiers]
    if unknown or not names:
        raise UsageError(f"--workloads takes small, heldout, or both with a comma, not {text!r}")
    return tuple(tiers[name] for name in dict.fromkeys(names))


def parse_sizes(text: str, task: Task) -> dict[str, int]:
    """Sizes such as ``M=256,N=256,K=1024``, every size of the task once and within its rules; else `UsageError`."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not (value.isascii() and value.isdecimal()) or len(value) > 10 or name in sizes:
            raise UsageError(f"--sizes takes {','.join(f'{n}=…' for n in task.sizes)}, not {text!r}")
        sizes[name] = int(value)
    problem = sizes_problem(task, sizes)
    if not problem and max(sizes.values()) > _LARGEST_SIZE:
        problem = f"--sizes takes numbers up to {_LARGEST_SIZE}"
    if problem:
        raise UsageError(problem)
    return {name: sizes[name] for name in task.sizes}
