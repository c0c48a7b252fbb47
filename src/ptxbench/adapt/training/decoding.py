"""Replies decoded in buffers of fixed size, so that a GPU records a model's step once and steps of models overlap."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from ptxbench.adapt.training.libraries import library
from ptxbench.adapt.training.recipe import Samples
from ptxbench.core import Progress, UsageError

CHECK = 64
"""Steps between looks at which replies have ended; a look waits for the GPU."""

ALIGNMENT = 16
"""The cache's length is a multiple of this: kernels for masked attention read their masks in whole vectors."""


class Decoding:
    """One model's replies to a batch of prompts (token ids), at most ``new_tokens`` each.

    Prompts end at the same place of the key-value cache; equal ones are read once. All state lies in buffers that keep
    their addresses. ``model`` must have attention in every layer (`UsageError` otherwise).
    """

    def __init__(
        self, model: Any, prompts: Sequence[Sequence[int]], wanted: Samples, *, new_tokens: int, end: int, seed: int
    ) -> None:
        torch = library("torch")
        kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise UsageError(
                "replies are written here only by models with full attention in every layer, and this one has "
                f"{', '.join(sorted(kinds))}; merge the training, serve the result and use `ptxbench run`"
            )
        self.model, self.wanted, self.end, self.device = model, wanted, end, model.device
        self.new_tokens = new_tokens
        self.length = max(map(len, prompts))
        rows, room = len(prompts), -(-(self.length + new_tokens) // ALIGNMENT) * ALIGNMENT
        self.seen = torch.zeros(rows, 1, 1, room, dtype=torch.bool, device=self.device)
        self.positions = torch.tensor([[len(prompt)] for prompt in prompts], device=self.device)
        self.logits = torch.empty(rows, model.config.vocab_size, dtype=model.dtype, device=self.device)
        self.tokens = torch.zeros(rows, 1, dtype=torch.long, device=self.device)
        self.replies = torch.full((rows, new_tokens), end, dtype=torch.long, device=self.device)
        self.ended = torch.zeros(rows, 1, dtype=torch.bool, device=self.device)
        self.cache = library("transformers").StaticCache(config=model.config, max_cache_len=room)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.written = 0
        self._graph: Any = None
        self._stream: Any = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        with torch.no_grad():
            self._read(prompts)

    def record(self) -> None:
        """Tries the model's step and, on a GPU, records it as a CUDA graph; the replies are as if it had not."""
        torch = library("torch")
        with self._mine():
            for _ in range(2):  # libraries choose kernels and take memory in their first calls
                self._forward()
            self._rewind()
        if self._stream is None:
            return
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self.logits.copy_(self._forward())
        self._graph = graph

    def advance(self) -> None:
        """One token more of each reply."""
        with self._mine():
            self._choose()
            if self.written == self.new_tokens:
                return
            self.seen[..., self.length] = True
            self.length += 1
            if self._graph is None:
                self.logits.copy_(self._forward())
            else:
                self._graph.replay()
            self.positions += 1

    @property
    def finished(self) -> bool:
        """Whether every reply has ended or has all its tokens."""
        with self._mine():
            return self.written == self.new_tokens or bool(self.ended.all())

    def texts(self) -> list[tuple[list[int], bool]]:
        """Each reply's tokens without the end token, and whether it ended by itself."""
        found: list[tuple[list[int], bool]] = []
        with self._mine():
            rows: list[list[int]] = self.replies[:, : self.written].tolist()
        for row in rows:
            ended = self.end in row
            found.append((row[: row.index(self.end)] if ended else row, ended))
        return found

    def _mine(self) -> contextlib.AbstractContextManager[Any]:
        return library("torch").cuda.stream(self._stream) if self._stream else contextlib.nullcontext()

    def _read(self, prompts: Sequence[Sequence[int]]) -> None:
        """Reads each distinct prompt by itself, without padding, into the rows of the cache that begin with it."""
        torch, config = library("torch"), self.model.config
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(len(prompts), heads, width, self.model.dtype, self.device)
        for prompt in dict.fromkeys(map(tuple, prompts)):
            rows = [row for row, own in enumerate(prompts) if tuple(own) == prompt]
            out = self.model(input_ids=torch.tensor([prompt], device=self.device), use_cache=True, logits_to_keep=1)
            self.logits[rows] = out.logits[:, -1]
            start = self.length - len(prompt)
            self.seen[rows, :, :, start : self.length] = True
            for mine, read in zip(self.cache.layers, out.past_key_values.layers, strict=True):
                mine.keys[rows, :, start : self.length] = read.keys
                mine.values[rows, :, start : self.length] = read.values
        self._rewind()
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))

    def _rewind(self) -> None:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.length)

    def _forward(self) -> Any:
        """The logits after ``tokens``, which it adds to the cache."""
        out = self.model(
            input_ids=self.tokens, attention_mask=self.seen, position_ids=self.positions, past_key_values=self.cache,
            use_cache=True,
        )  # fmt: skip
        return out.logits[:, -1]

    def _choose(self) -> None:
        """The next token of each reply, after those before it; ended ones are filled with the end token."""
        torch, wanted = library("torch"), self.wanted
        if wanted.temperature:
            shares = torch.softmax(self.logits.float() / wanted.temperature, dim=-1)
            if wanted.top_p < 1:
                ordered, order = shares.sort(dim=-1, descending=True)
                ordered[ordered.cumsum(dim=-1) - ordered >= wanted.top_p] = 0
                shares = torch.zeros_like(shares).scatter_(-1, order, ordered)
            chosen = torch.multinomial(shares, 1, generator=self.generator)
        else:
            chosen = self.logits.argmax(dim=-1, keepdim=True)
        self.tokens.copy_(chosen.masked_fill_(self.ended, self.end))
        self.replies[:, self.written : self.written + 1] = self.tokens
        self.ended |= self.tokens == self.end
        self.written += 1


def decode(decodings: Sequence[Decoding], say: Progress, *, seconds: float | None = None) -> float:
    """Lets all replies be written, a token of each in turns, so that a GPU works on several models at a time; returns
    the seconds that it took. After ``seconds`` it stops; what is written then stays, and is not marked as ended.
    """
    with library("torch").no_grad():
        for decoding in decodings:
            decoding.record()
        running, steps, began = list(decodings), 0, time.monotonic()
        while running and (seconds is None or time.monotonic() - began < seconds):
            for _ in range(CHECK):
                for decoding in running:
                    if decoding.written < decoding.new_tokens:
                        decoding.advance()
            steps += CHECK
            running = [decoding for decoding in running if not decoding.finished]
            say(f"{steps} tokens of each reply after {time.monotonic() - began:.0f} s, {len(running)} batches going on")
    return time.monotonic() - began
