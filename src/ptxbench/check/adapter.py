"""Any launcher as a candidate: its parameters become those of a made-up task, and a function behind the source maps
one onto the other. Line numbers of the source stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ptxbench.check.declaration import Launcher, Parameter
from ptxbench.check.expressions import LARGEST, parse_sizes
from ptxbench.check.shapes import ELEMENT_BYTES, ELEMENT_NAMES, Shape
from ptxbench.core import Argument, Task, UsageError

_WORD = 4  # the made-up task's tensors are rows of 32-bit words
_TAKEN = ("launch", "workspace_bytes")  # names that the interface of a candidate needs


@dataclass(frozen=True)
class Adapted:
    """A source with the interface of ``task``, and the ``sizes`` to record it at.

    ``values`` are those sizes that the launcher has, ``elements`` the short names of the tensors' element types.
    """

    source: str
    task: Task
    sizes: dict[str, int]
    values: dict[str, int]
    elements: dict[str, str]


def adapt(source: str, launcher: Launcher, shapes: Mapping[str, Shape], values: Mapping[str, float]) -> Adapted:
    """The launcher behind a candidate's interface; `UsageError` names a shape or value that is missing."""
    sizes = parse_sizes(values)
    tensors = [p for p in launcher.of_kind("input", "output", "workspace") if p.kind != "workspace" or p.name in shapes]
    _check_names(launcher, tensors, shapes, values)
    words: dict[str, int] = {}
    elements: dict[str, str] = {}
    for tensor in tensors:
        shape = shapes[tensor.name]
        elements[tensor.name] = shape.element or _element(tensor)
        count = -(-shape.elements(sizes) * ELEMENT_BYTES[elements[tensor.name]] // _WORD)
        if count > LARGEST:
            raise UsageError(f"{tensor.name} has {count * _WORD} bytes at these sizes; use smaller sizes")
        words[words_name(tensor.name)] = count
    numbers = {p.name: sizes[p.name] for p in launcher.of_kind("size")}
    task = Task(
        name=launcher.name,
        title=f"the launcher {launcher.name}",
        operation="",
        sizes=(*words, *numbers),
        size_rules={},
        arguments=tuple(
            Argument(
                name=p.name, role="input" if p.kind == "input" else "output", dtype="f32", shape=(words_name(p.name),)
            )
            for p in tensors
        ),
        workloads=(),
        distributions=(),
        baselines=(),
    )
    text, names = _renamed(source)
    return Adapted(f"{text}\n{_adapter(launcher, task, names, values)}", task, words | numbers, numbers, elements)


def words_name(tensor: str) -> str:
    """The name of the made-up size of a tensor."""
    return f"{tensor}_words"


def _check_names(
    launcher: Launcher, tensors: list[Parameter], shapes: Mapping[str, Shape], values: Mapping[str, float]
) -> None:
    missing = [tensor.name for tensor in tensors if tensor.name not in shapes]
    if missing:
        example = " ".join(f"{name}[...]" for name in missing)
        raise UsageError(f"the shape of {', '.join(missing)} is not known; add --shapes '{example}'")
    unknown = [name for name in shapes if name not in {tensor.name for tensor in tensors}]
    if unknown:
        raise UsageError(f"{launcher.name} has no pointer {', '.join(unknown)}; --shapes takes its own parameters")
    unset = [p.name for p in launcher.of_kind("size", "scalar") if p.name not in values]
    if unset:
        example = ",".join(f"{name}=..." for name in unset)
        raise UsageError(f"{', '.join(unset)} of {launcher.name} has no value; add --sizes {example}")
    whole = parse_sizes(values)
    broken = [p.name for p in launcher.of_kind("size") if p.name not in whole]
    if broken:
        raise UsageError(f"{', '.join(broken)} of {launcher.name} is an integer; --sizes takes 0 to {LARGEST} for it")


def _element(tensor: Parameter) -> str:
    name = ELEMENT_NAMES.get(tensor.element)
    if name is None:
        raise UsageError(
            f"the element type {tensor.element} of {tensor.name} is not known; "
            f"give it as in --shapes '{tensor.name}:u8[...]'"
        )
    return name


def _renamed(source: str) -> tuple[str, dict[str, str]]:
    """The source with those names replaced that the adapter needs, each by one of its own."""
    names = {name: f"{name}_of_source" for name in _TAKEN if re.search(rf"\b{name}\b", source)}
    for old, new in names.items():
        source = re.sub(rf"(?<![\w.:>]){old}\b", new, source)
    return source, names


def _adapter(launcher: Launcher, task: Task, names: Mapping[str, str], values: Mapping[str, float]) -> str:
    parameters = ", ".join(f"{c_type} {name}" for c_type, name in task.parameters())
    call = f"{names.get(launcher.name, launcher.name)}({', '.join(_arguments(launcher, task, values))})"
    body = f"{call}; return 0;" if launcher.returns == "void" else f"return static_cast<int>({call});"
    lines = [f'extern "C" int launch({parameters}) {{ {body} }}']
    if "workspace_bytes" in names:
        ints = ", ".join(f"int {name}" for name in task.sizes)
        own = ", ".join(p.name for p in launcher.of_kind("size"))
        lines.append(f'extern "C" size_t workspace_bytes({ints}) {{ return {names["workspace_bytes"]}({own}); }}')
    return "\n".join(lines) + "\n"


def _arguments(launcher: Launcher, task: Task, values: Mapping[str, float]) -> Iterator[str]:
    tensors = {argument.name for argument in task.arguments}
    for parameter in launcher.parameters:
        if parameter.name in tensors:
            yield f"reinterpret_cast<{parameter.type}>({parameter.name})"
        elif parameter.kind == "size":
            yield f"static_cast<{parameter.type}>({parameter.name})"
        elif parameter.kind == "scalar":
            yield f"static_cast<{parameter.type}>({values[parameter.name]!r})"
        else:
            yield "stream" if parameter.kind == "stream" else f"static_cast<{parameter.type}>(workspace)"
