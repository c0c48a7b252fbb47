"""Memory per GPU of a fully sharded training, worked out from a model's dimensions.

The formulas count what must exist; they are estimates for planning, not measurements.
"""

from __future__ import annotations

from ptxbench.adapt.training.recipe import TrainingRecipe
from ptxbench.core import Record, UsageError

GIB = 2.0**30
BF16 = 2
TRAINED_BYTES = 16
"""Per trained parameter: value, gradient and AdamW's two moments, each in float32."""

LOSS_CHUNK = 256
"""Tokens whose logits exist at a time in TRL's chunked loss (`nll`)."""


class Memory(Record):
    """GiB per GPU, by what needs it."""

    weights: float
    trained: float
    checkpoints: float
    working: float
    gathered: float
    logits: float
    context: float = 1.5
    """The CUDA context, libraries' workspaces and what the allocator cannot use."""

    @property
    def total(self) -> float:
        """All of it."""
        return (self.weights + self.trained + self.checkpoints + self.working + self.gathered + self.logits
                + self.context)  # fmt: skip


def memory_per_gpu(recipe: TrainingRecipe, tokens: int | None = None) -> Memory:
    """Memory at ``tokens`` per GPU (default: the recipe's longest row times its batch); needs the recipe's shape.

    With P parameters, L layers, width H, inner width F, vocabulary V, N GPUs, T tokens, and A trained parameters:

    - weights: 2 P / N bytes, bf16, sharded (all of them are trained: none beside the trained ones);
    - trained: 16 A / N bytes (float32 value, gradient, two moments);
    - checkpoints: 2 T H L bytes, each layer's input, with activation checkpointing (none if moved to the host);
    - working: the layer that is recomputed: 2 T (12 H + 4 F) bytes for its projections, norms and their gradients;
    - gathered: two layers' whole weights, one in use and one prefetched, and the embedding: 2 (2 P / L + V H) bytes;
    - logits: float32 of 256 tokens at a time with their gradient, and the hidden states' gradient.
    """
    shape, layout = recipe.shape, recipe.layout
    if shape is None:
        raise UsageError(f"the recipe '{recipe.name}' has no [shape], from which memory would be worked out; add one")
    tokens = tokens or recipe.max_tokens * recipe.optimizer.batch
    adapted = shape.trained_per_rank * recipe.lora.rank if recipe.lora else shape.parameters
    hidden_bytes = BF16 * tokens * shape.hidden
    kept = shape.layers if recipe.optimizer.activation_checkpointing else 0
    layer = BF16 * tokens * (12 * shape.hidden + 4 * shape.ffn)
    return Memory(
        weights=(BF16 * shape.parameters / layout.gpus if recipe.lora else 0.0) / GIB,
        trained=TRAINED_BYTES * adapted / layout.gpus / GIB,
        checkpoints=0.0 if layout.offload_activations else hidden_bytes * kept / GIB,
        working=layer * (1 if kept else shape.layers) / GIB,
        gathered=BF16 * (2 * shape.parameters / shape.layers + shape.vocabulary * shape.hidden) / GIB,
        logits=(2 * 4 * LOSS_CHUNK * shape.vocabulary + 2 * hidden_bytes) / GIB,
    )


def fits(recipe: TrainingRecipe) -> Memory:
    """The memory of a recipe; `UsageError` if its GPUs have less."""
    memory = memory_per_gpu(recipe)
    if memory.total > recipe.layout.gib_per_gpu:
        raise UsageError(
            f"the recipe '{recipe.name}' needs about {memory.total:.0f} GiB on each of {recipe.layout.gpus} GPUs of "
            f"{recipe.layout.gib_per_gpu:.0f} GiB; lower max_tokens, raise layout.gpus or set "
            "layout.offload_activations"
        )
    return memory
