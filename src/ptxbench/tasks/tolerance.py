"""What errors are divided by: the largest of an honest kernel's, that of merely rounding the truth, and a constant.

Errors come in units of each element's derived error scale, so that the constants are those of rounding alone: an RMS
error of 1, and a largest error of half an ulp, which is √3 of the RMS error ulp/√12.
"""

from __future__ import annotations

import math

import numpy as np

from ptxbench.tasks.arrays import Float64

HALF_ULP = math.sqrt(3.0)


def rms_denominator(honest: Float64, rounding: Float64) -> Float64:
    """The yardstick of RMS errors, from those of the honest algorithm and of rounding, per block or overall."""
    return np.maximum(1.0, np.maximum(honest, rounding))


def max_denominator(honest: Float64, rounding: Float64) -> Float64:
    """The yardstick of largest errors, from those of the honest algorithm and of rounding, per block."""
    return np.maximum(HALF_ULP, np.maximum(honest, rounding))
