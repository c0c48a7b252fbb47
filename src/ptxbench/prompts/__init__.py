"""What models are shown: prompt conditions, knowledge documents, feedback on verdicts, kernels taken from replies."""

from ptxbench.prompts.compose import Condition, PartUse, Prompt, compose, documents, load_conditions
from ptxbench.prompts.parts import Part, load_parts
from ptxbench.prompts.tokens import estimate_tokens

__all__ = [
    "Condition", "Part", "PartUse", "Prompt", "compose", "documents", "estimate_tokens", "load_conditions", "load_parts",
]
