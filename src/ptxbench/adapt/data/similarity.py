"""How alike two sources are: normalised tokens, shingles, MinHash for candidates, exact Jaccard for the answer."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHINGLE = 5
"""Tokens in a shingle."""

HASHES, BANDS = 128, 32
"""MinHash: 32 bands of 4 rows find a pair of Jaccard similarity s with probability 1 - (1 - s^4)^32: above 0.999 from
s = 0.7 on (A. Broder, "On the resemblance and containment of documents", 1997).
"""

_WEIGHTS = np.array([3, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63], np.uint64)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|\d[\w.]*|::|<<<|>>>|[^\s\w]')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OWN_NAME = re.compile(r"[A-Za-z_]\w*")

# Names that say what a kernel does; every other name is the author's choice and counts as "x".
_KEPT = re.compile(
    r"wgmma|tcgen05|mbarrier|tma_|tensormap|encode|stmatrix|ldmatrix|fence|bulk|setmaxnreg|cluster|bar_|elect|mma|cuda|"
    r"cu[A-Z]|__|CU_|exp|erf|log|max|min|fmaf|Idx|Dim|Swizzle|Major|reduce|shfl|descriptor|asm|volatile|launch|for|if|"
    r"else|while|return|struct|template|constexpr|const|static|inline|extern|float|int|void|bool|auto|uint|size_t|sizeof"
)


Shingles = NDArray[np.uint64]
"""Sorted, distinct hashes."""


def tokens(source: str) -> list[str]:
    """The tokens of C++ text without comments; names that authors choose freely become ``x``."""
    return [_normal(token) for token in _TOKEN.findall(_COMMENT.sub(" ", source))]


@functools.lru_cache(maxsize=1 << 16)
def _normal(token: str) -> str:
    return "x" if _OWN_NAME.fullmatch(token) and not _KEPT.search(token) else token


@functools.lru_cache(maxsize=1 << 16)
def _hash(token: str) -> int:
    return int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest(), "little")


def shingles(source: str) -> Shingles:
    """Hashes of every run of `SHINGLE` tokens."""
    words = np.array([_hash(token) for token in tokens(source)] + [0] * SHINGLE, dtype=np.uint64)
    runs = np.lib.stride_tricks.sliding_window_view(words, SHINGLE)[: max(1, len(words) - 2 * SHINGLE + 1)]
    return np.unique((runs * _WEIGHTS).sum(axis=1, dtype=np.uint64))


def jaccard(a: Shingles, b: Shingles) -> float:
    """|a ∩ b| / |a ∪ b|; 1 for two empty sets."""
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / (len(a) + len(b) - common) if len(a) or len(b) else 1.0


def signature(found: Shingles) -> NDArray[np.uint64]:
    """The MinHash signature: the least of each of `HASHES` linear hashes (modulo 2^64, upper half) over the set."""
    factors, offsets = np.random.default_rng(20).integers(0, 1 << 63, size=(2, HASHES, 1), dtype=np.uint64)
    return ((found * (factors * np.uint64(2) + np.uint64(1)) + offsets) >> np.uint64(32)).min(axis=1)


class Neighbour(NamedTuple):
    """The most similar one kept before, and the exact similarity; ("", 0) if none was proposed."""

    name: str
    alike: float


class NearDuplicates:
    """Keeps what is new: shingles of sources whose similarity with everything kept before stays below
    ``threshold``."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.kept: dict[str, Shingles] = {}
        self._buckets: defaultdict[tuple[int, bytes], list[str]] = defaultdict(list)

    def add(self, name: str, own: Shingles) -> Neighbour:
        """Keeps a source, given by its shingles, unless it is a near-duplicate; MinHash proposes what it is like."""
        bands = list(_bands(own))
        proposed = sorted({name for key in bands for name in self._buckets.get(key, ())})
        scored = (Neighbour(other, jaccard(own, self.kept[other])) for other in proposed)
        found = max(scored, key=lambda neighbour: neighbour.alike, default=Neighbour("", 0.0))
        if found.alike < self.threshold:
            self.kept[name] = own
            for key in bands:
                self._buckets[key].append(name)
        return found


def _bands(found: Shingles) -> Iterator[tuple[int, bytes]]:
    rows = signature(found).reshape(BANDS, -1)
    return ((band, row.tobytes()) for band, row in enumerate(rows))
