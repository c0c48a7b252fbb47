"""Our own C++: the content-addressed cache on disk, and libraries built into it once per machine."""

from ptxbench.native.cache import Cache, default_cache_root
from ptxbench.native.library import build_library, compiler_version, host_compiler, scrubbed_environment

__all__ = ["Cache", "build_library", "compiler_version", "default_cache_root", "host_compiler", "scrubbed_environment"]
