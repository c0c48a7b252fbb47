"""What models are shown: prompt conditions, knowledge documents, feedback on verdicts, kernels taken from replies."""

from ptxbench.prompts.compose import Answer, Condition, PartUse, Prompt, compose, documents, load_conditions
from ptxbench.prompts.extraction import Extraction, ExtractionOutcome, extract_kernel
from ptxbench.prompts.feedback import MIN_TOKENS, feedback
from ptxbench.prompts.parts import Part, load_parts
from ptxbench.prompts.tokens import estimate_tokens

__all__ = [
    "MIN_TOKENS", "Answer", "Condition", "Extraction", "ExtractionOutcome", "Part", "PartUse", "Prompt", "compose",
    "documents", "estimate_tokens", "extract_kernel", "feedback", "load_conditions", "load_parts",
]
