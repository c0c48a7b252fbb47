"""PTXBench: how well do language models write GPU kernels with a chip's own instructions?"""

__version__ = "0.1.0"
