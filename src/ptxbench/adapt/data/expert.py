"""Expert rows: a task, a worked explanation with the kernel's own numbers, and a kernel that the judge accepted."""

from __future__ import annotations

from ptxbench.adapt.data.conversation import Prompter, answer, shape_conflict
from ptxbench.adapt.data.explain import explain_solution, explain_variant, summary_sentence
from ptxbench.adapt.data.judged import GoodKernel
from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.rows import LICENCE, Dropped, Row, provenance
from ptxbench.adapt.data.split import families


def expert_row(recipe: Recipe, prompter: Prompter, good: GoodKernel, plan: str = "") -> Row | Dropped:
    """The row of one kernel, before its tokens are counted; ``plan`` is a teacher's explanation, if there is one."""
    kernel = good.kernel
    sizes = prompter.sizes(kernel.task, kernel.name)
    conflict = shape_conflict(kernel.task, sizes)
    if conflict:
        return Dropped(name=kernel.name, gate="evaluation_shape", detail=conflict)
    condition = prompter.condition(uses_headers=kernel.uses_headers)
    if kernel.variant is not None:
        explanation, sentence = plan or explain_variant(kernel.variant, sizes), summary_sentence(kernel.variant)
    else:
        about = kernel.solution.about if kernel.solution else ""
        explanation, sentence = explain_solution(kernel.source, about), f"The kernel below: {about}." if about else ""
    return Row(
        kind="expert",
        task=kernel.task.name,
        task_family=families()[kernel.task.name],
        target=kernel.target,
        kernel_family=kernel.group,
        techniques=kernel.techniques,
        messages=(
            *prompter.messages(kernel.task, kernel.target, condition, sizes),
            answer(recipe, explanation, sentence, kernel.source),
        ),
        condition=condition,
        sizes=sizes,
        speedup=good.verdict.timing.speedup.median if good.verdict.timing else None,
        licence=f"{LICENCE}; explanation: output of {recipe.explanations.teacher}" if plan else LICENCE,
        provenance=provenance(kernel.name, good.verdict),
    )
