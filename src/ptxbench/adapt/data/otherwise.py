"""Faults in which something else than the target's own instruction does the products: whole kernels are added."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ptxbench.adapt.data.families import Variant, kernel_templates

Rewrite = Callable[[Variant, re.Match[str]], str]
"""Turns a good kernel, and its launch as found, into the text of the whole faulty file."""


def _scalar_kernel(variant: Variant, launch: re.Match[str]) -> str:
    kernel, call = _plain(variant)
    return _with_kernel(variant.source, launch, kernel, call)


def _scalar_beside(variant: Variant, launch: re.Match[str]) -> str:
    kernel, call = _plain(variant)
    return _with_kernel(variant.source, launch, kernel, launch[0] + call)


def _older_kernel(variant: Variant, launch: re.Match[str]) -> str:
    module = _module()
    kernel, call = module["older"](variant.plan.parameters), module["older_call"](variant.plan.parameters)
    return _with_kernel(variant.source, launch, kernel, call)


def _plain(variant: Variant) -> tuple[str, str]:
    """A kernel of ordinary multiply-adds for the variant's task, and its launch."""
    name = "gemm" if variant.plan.facts["operation"] == "gemm" else "forward"
    module = _module()
    return module[name](variant.plan.parameters), module[f"{name}_call"](variant.plan.parameters)


def _module() -> Mapping[str, Any]:
    return kernel_templates().get_template("naive.cu.j2").make_module().__dict__


def _with_kernel(source: str, launch: re.Match[str], kernel: str, call: str) -> str:
    changed = source[: launch.start()] + call + source[launch.end() :]
    at = changed.index('extern "C"')
    return changed[:at] + kernel.strip("\n") + "\n\n" + changed[at:]


REWRITES: Mapping[str, Rewrite] = {
    "scalar_kernel": _scalar_kernel,
    "scalar_beside": _scalar_beside,
    "older_kernel": _older_kernel,
}
