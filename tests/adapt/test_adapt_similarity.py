from __future__ import annotations

import random

import numpy as np
import pytest

from ptxbench.adapt.data.similarity import HASHES, NearDuplicates, jaccard, shingles, signature, tokens
from ptxbench.solutions import solutions


def test_comments_names_and_space_do_not_count() -> None:
    one = "// load\nint stage = 3;   for (int k = 0; k < steps; ++k) ptx::wgmma_fence();"
    two = "int slot=3; for(int i=0;i<count;++i) ptx::wgmma_fence(); /* the same */"
    assert tokens(one) == tokens(two)
    assert jaccard(shingles(one), shingles(two)) == 1.0


def test_what_is_done_does_count() -> None:
    one, two = "a = b; ptx::wgmma_fence(); c = d + 4;", "a = b; ptx::wgmma_wait_group<0>(); c = d + 4;"
    assert tokens(one) != tokens(two)
    assert jaccard(shingles(one), shingles(two)) < 1.0


def test_jaccard_is_the_share_of_common_shingles() -> None:
    a, b = np.array([1, 2, 3, 4], np.uint64), np.array([3, 4, 5, 6, 7, 8], np.uint64)
    assert jaccard(a, b) == pytest.approx(2 / 8)
    assert jaccard(a, a) == 1.0
    assert jaccard(a[:0], a[:0]) == 1.0


def test_signatures_estimate_the_similarity() -> None:
    rng = random.Random(1)
    words = [rng.getrandbits(64) for _ in range(900)]
    a = np.unique(np.array(words[:600], np.uint64))
    b = np.unique(np.array(words[200:800], np.uint64))
    agreed = float((signature(a) == signature(b)).mean())
    exact = jaccard(a, b)  # 400 / 800
    assert exact == pytest.approx(0.5)
    assert agreed == pytest.approx(exact, abs=3.5 * (exact * (1 - exact) / HASHES) ** 0.5)


def test_near_duplicates_are_found_among_real_kernels() -> None:
    rows = solutions("gemm_n7168_k5120")
    seen = NearDuplicates(0.9)
    for row in rows:
        seen.add(row.file, shingles(row.source()))
    changed = rows[2].source().replace("STAGES = 4", "STAGES = 5").replace("acc", "sums")
    name, alike = seen.add("changed", shingles(changed))
    assert name == rows[2].file
    assert 0.9 < alike < 1.0
    assert "changed" not in seen.kept


def test_a_new_kernel_is_kept() -> None:
    seen = NearDuplicates(0.9)
    first, second = (shingles(row.source()) for row in solutions()[:2])
    assert seen.add("first", first) == ("", 0.0)
    assert seen.add("second", second).alike < 0.9
    assert set(seen.kept) == {"first", "second"}
