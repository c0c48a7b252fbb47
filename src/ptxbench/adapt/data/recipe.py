"""What a data set is built from: recipes in TOML, checked when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from ptxbench.adapt.data.faults import FAILURES
from ptxbench.adapt.recipes import recipe_fields, recipe_of
from ptxbench.core import Record, Target, UsageError
from ptxbench.prompts import load_conditions
from ptxbench.tasks import get_task


class Sources(Record):
    """Where good kernels come from. ``families`` names kernel families (empty: all), ``tasks`` and ``targets`` narrow
    them; ``per_task`` is how many distinct kernels are judged per task and target. ``trajectories`` are folders of runs
    whose repairs are mined (repair recipes) or whose passing turns are taken (expert recipes).
    """

    solutions: bool = True
    families: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    targets: tuple[Target, ...] = tuple(Target)
    per_task: int = Field(default=20, ge=1)
    trajectories: tuple[str, ...] = ()


class Faults(Record):
    """Repair rows from faults. ``names`` narrows the operators (empty: all); each is tried on kernels that are unlike
    (similarity below ``unlike``) until ``per_fault`` of them are confirmed or ``tries`` were judged; after these on
    further kernels while a kind of failure has fewer rows than ``minimum`` asks for.
    """

    names: tuple[str, ...] = ()
    per_fault: int = Field(default=3, ge=1)
    tries: int = Field(default=9, ge=1)
    unlike: float = Field(default=0.7, gt=0, le=1)
    minimum: dict[str, int] = {}

    @model_validator(mode="after")
    def _known(self) -> Faults:
        unknown = sorted(set(self.minimum) - set(FAILURES))
        if unknown:
            raise ValueError(f"minimum names unknown kinds of failure: {', '.join(unknown)}")
        return self


class Explanations(Record):
    """Who explains expert rows: templates, or a ``teacher`` model (a name as `ptxbench run --model` takes it).

    A teacher's explanation must have at least and at most so many ``words`` and speak of nothing that is not in the
    kernel, its facts or its task; where it does not, the template's is taken.
    """

    teacher: str = ""
    words: tuple[int, int] = (80, 1200)


class Gates(Record):
    """Limits of what is let in. Similarities are Jaccard indices of shingles of normalised tokens.

    ``duplicate`` drops a kernel as similar as that to one kept before it for the same task and target,
    ``copy_of_other_task`` one as similar as that to any; ``contamination`` one as similar as that to a known-good
    kernel of an evaluation task. ``max_tokens`` bounds a row; longer ones are dropped, never cut. Kernels longer than
    ``max_source_bytes`` (None: no limit) are not chosen at all, for models of short context. ``speed_floor`` drops good
    kernels that a device timed slower than that share of the library. ``max_share`` is the share of rows beyond which
    one task, target or failure counts as unbalanced.
    """

    duplicate: float = Field(default=0.9, gt=0, le=1)
    copy_of_other_task: float = Field(default=0.99, gt=0, le=1)
    contamination: float = Field(default=0.8, gt=0, le=1)
    max_tokens: int = Field(default=32768, ge=256)
    max_source_bytes: int | None = Field(default=None, ge=256)
    feedback_tokens: int = Field(default=1500, ge=100)
    speed_floor: float = Field(default=0.15, ge=0)
    max_share: float = Field(default=0.6, gt=0, le=1)


class Recipe(Record):
    """One data set.

    ``conditions`` says under which prompt condition kernels that include the header set, and kernels that stand alone,
    are shown. ``validation`` names tasks whose whole families are held back for validation. ``evaluation_tasks`` must
    name an evaluation task for its kernels to be let in, and the data card says so. ``reasoning`` puts the explanation
    into a field of its own (``field``) or before the code (``inline``). ``tokenizer`` is ``estimate``, or the name,
    the folder or the GGUF file of a tokenizer that ``transformers`` loads. ``shapes`` lists timed sizes per operation
    for prompts, so that those of evaluation tasks need not be shown.
    """

    name: str
    kind: Literal["expert", "repair"]
    about: str = ""
    seed: int = 0
    conditions: dict[Literal["headers", "standalone"], str] = {"headers": "headers", "standalone": "sheet"}
    sources: Sources = Sources()
    faults: Faults = Faults()
    gates: Gates = Gates()
    explanations: Explanations = Explanations()
    shapes: dict[str, tuple[dict[str, int], ...]] = {}
    validation: tuple[str, ...] = ()
    evaluation_tasks: tuple[str, ...] = ()
    reasoning: Literal["field", "inline"] = "field"
    tokenizer: str = "estimate"


def load_recipe(path: Path) -> Recipe:
    """Reads a recipe; `UsageError` in one sentence for everything that can be wrong with it."""
    recipe = recipe_of(Recipe, recipe_fields(path), path)
    known = load_conditions()
    for condition in recipe.conditions.values():
        if condition not in known:
            raise UsageError(f"the recipe {path} names the unknown prompt condition '{condition}'; "
                             f"there are {', '.join(known)}")  # fmt: skip
    for name in (*recipe.validation, *recipe.evaluation_tasks, *recipe.sources.tasks):
        get_task(name)
    return recipe
