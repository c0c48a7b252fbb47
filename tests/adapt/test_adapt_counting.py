from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ptxbench.adapt.data.counting import token_counter
from ptxbench.adapt.data.rows import Message
from ptxbench.core import UsageError
from ptxbench.prompts import estimate_tokens

CHAT = (
    Message(role="user", content="Write a kernel."),
    Message(role="assistant", content="```cuda\nint launch();\n```", reasoning_content="One stage is enough."),
)
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None


def test_the_estimate_counts_content_and_reasoning() -> None:
    count = token_counter("estimate")
    texts = [text for message in CHAT for text in (message.content, message.reasoning_content)]
    assert count(CHAT) == sum(estimate_tokens(text) for text in texts) + 2 * 8
    assert count(CHAT[:1]) < count(CHAT)


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed here")
def test_a_tokenizer_needs_transformers() -> None:
    with pytest.raises(UsageError, match="needs the package transformers"):
        token_counter("some/model")


@pytest.mark.skipif(not HAS_TRANSFORMERS, reason="needs transformers")
@pytest.mark.parametrize("name", ["", "model.gguf"])
def test_a_tokenizer_that_cannot_be_loaded(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot load the tokenizer"):
        token_counter(str(tmp_path / name))
