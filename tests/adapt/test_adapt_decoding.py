"""Decoding in buffers of fixed size writes what the library's own generation writes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from training_data import row

from ptxbench.adapt.training.decoding import Decoding, decode
from ptxbench.adapt.training.recipe import Samples
from ptxbench.core import UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow
os.environ.setdefault("OMP_NUM_THREADS", "1")

from ptxbench.adapt.training.models import tiny_model, tiny_tokenizer  # noqa: E402

PROMPTS = [list(range(10, 10 + length)) for length in (7, 30, 7, 19)]
GREEDY = Samples(data=("any",), temperature=0)
WARM = Samples(data=("any",), temperature=1, top_p=0.9)


def said(_stage: str) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer("llama", [m.content for n in range(9) for m in row("repair", n).conversation])


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return tiny_model("llama", tokenizer, 0).eval()


def test_greedy_replies_are_those_of_generate(model: Any, tokenizer: Any) -> None:
    end = PROMPTS[0][3]  # a token that this random model writes sooner or later
    decoding = Decoding(model, PROMPTS, GREEDY, new_tokens=40, end=end, seed=0)
    decode([decoding], said)
    for prompt, (tokens, ended) in zip(PROMPTS, decoding.texts(), strict=True):
        with torch.no_grad():
            out = model.generate(
                input_ids=torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=40, do_sample=False, eos_token_id=end, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        expected = out[0, len(prompt) :].tolist()
        assert ended == (end in expected)
        assert tokens == (expected[: expected.index(end)] if ended else expected)


def test_a_seed_gives_the_same_replies_whatever_is_written_beside_them(model: Any) -> None:
    def texts(seed: int, *others: int) -> list[tuple[list[int], bool]]:
        decodings = [Decoding(model, PROMPTS, WARM, new_tokens=20, end=0, seed=own) for own in (seed, *others)]
        decode(decodings, said)
        return decodings[0].texts()

    assert texts(1) == texts(1, 2, 3)
    assert texts(1) != texts(2)


def test_what_is_written_when_the_time_ends_stays(model: Any) -> None:
    decoding = Decoding(model, PROMPTS, WARM, new_tokens=4000, end=0, seed=0)
    assert decode([decoding], said, seconds=0.01) >= 0.01
    assert {len(tokens) for tokens, ended in decoding.texts() if not ended} <= {decoding.written}
    assert 0 < decoding.written < 4000


def test_a_model_with_other_layers_than_attention_is_refused(tokenizer: Any) -> None:
    with pytest.raises(UsageError, match=r"linear_attention; merge the training"):
        Decoding(tiny_model("qwen3_5", tokenizer, 0), PROMPTS, GREEDY, new_tokens=1, end=0, seed=0)
