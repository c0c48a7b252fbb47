"""What the command line's options may say, and the sentence for what they may not."""

from __future__ import annotations

from typing import Literal, cast, get_args

from ptxbench.core import Price, Target, Task, Tier, UsageError
from ptxbench.core.trajectory import Effort
from ptxbench.tasks import sizes_problem

_LARGEST_SIZE = 2**31 - 1  # sizes are ints of the launcher


def parse_target(name: str) -> Target:
    """A target by name; `UsageError` lists the known ones."""
    try:
        return Target(name)
    except ValueError:
        known = " or ".join(target.value for target in Target)
        raise UsageError(f"there is no target {name!r}; --target takes {known}") from None


def parse_device(name: str) -> Literal["sim", "cuda", "auto"]:
    """A device by name; `UsageError` lists the known ones."""
    for known in ("sim", "cuda", "auto"):
        if name == known:
            return known
    raise UsageError(f"there is no device {name!r}; --device takes sim, cuda or auto")


def parse_tiers(text: str, *, gpu: bool = False) -> tuple[Tier, ...]:
    """Tiers from a comma-separated list; `UsageError` on anything the device cannot run (``core`` needs a GPU)."""
    tiers: dict[str, Tier] = {"small": "small", "heldout": "heldout"}
    if gpu:
        tiers["core"] = "core"
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in tiers]
    if unknown or not names:
        takes = "small, heldout, core, or several with commas" if gpu else "small, heldout, or both with a comma"
        needs = " on the simulator" if "core" in unknown else ""
        raise UsageError(f"--workloads takes {takes}{needs}, not {text!r}")
    return tuple(tiers[name] for name in dict.fromkeys(names))


def parse_names(text: str) -> tuple[str, ...]:
    """Names from a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_effort(text: str | None) -> Effort | None:
    """A reasoning effort; `UsageError` lists the known ones."""
    if text is None:
        return None
    known = get_args(Effort)
    if text not in known:
        raise UsageError(f"there is no reasoning effort {text!r}; --reasoning-effort takes {', '.join(known)}")
    return cast("Effort", text)


def parse_price(text: str) -> Price | None:
    """A price such as ``1.25,10`` or ``1.25,10,0.125``; `UsageError` on anything else."""
    if not text:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or not all(0 <= number < 1e6 for number in numbers):
        raise UsageError(f"--price takes input,output or input,output,cached in US dollars per million, not {text!r}")
    return Price(input=numbers[0], output=numbers[1], cached=numbers[2] if len(numbers) == 3 else numbers[0])


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
