"""Small PTX modules written by hand."""

from __future__ import annotations

_HEADER = """.version 9.0
.target {target}
.address_size 64
{module}
.visible .entry k({parameters}) {directives}
{{
.reg .pred %p<32>;
.reg .b16 %h<32>;
.reg .b32 %r<256>;
.reg .f32 %f<256>;
.reg .b64 %rd<64>;
.reg .f64 %fd<16>;
{body}
}}
"""


def kernel(
    body: str, *, pointers: int = 1, target: str = "sm_90a", module: str = "", directives: str = ""
) -> str:
    """An entry ``k`` of ``pointers`` 64-bit parameters, loaded into ``%rd1``, ``%rd2``, ... before the body."""
    parameters = ", ".join(f".param .u64 p{i}" for i in range(1, pointers + 1))
    loads = "\n".join(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(1, pointers + 1))
    return _HEADER.format(
        target=target, parameters=parameters, body=f"{loads}\n{body}", module=module, directives=directives
    )


THREAD_ADDRESS = """
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd21, %rd1, %rd20;
"""
"""``%r1`` is the thread, ``%rd21`` the address of its 32-bit element of the first parameter."""
