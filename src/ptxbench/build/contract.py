"""The interface of a candidate, checked by the compiler itself: names, C linkage and the type of every argument."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ptxbench.build.remarks import Diagnostic
from ptxbench.core import Outcome, Rejection, Task

SOURCE = "kernel.cu"
CHECK = "contract"
"""Names under which the tools report positions in the candidate and in the check."""

_HEADERS = {"__nv_bfloat16": "cuda_bf16.h", "__half": "cuda_fp16.h"}

# The candidate's macros must not reach into the check.
_WORDS = (
    "namespace", "template", "typename", "struct", "using", "static", "constexpr", "bool", "int", "float", "const",
    "void", "false", "true", "noexcept", "sizeof", "decltype", "static_assert", "extern", "size_t", "cudaStream_t",
    "__nv_bfloat16", "__half", "launch", "workspace_bytes", "ptxbench_contract",
)

_MACHINERY = """\
namespace ptxbench_contract {
struct absent {};
template <typename Expected, typename Got> struct same { static constexpr bool value = false; };
template <typename Same> struct same<Same, Same> { static constexpr bool value = true; };
template <int Index, typename Expected, typename Got> struct argument {
  static_assert(same<Expected, Got>::value || same<Got, absent>::value, "argument type");
};
template <int Expected, int Got> struct count { static_assert(Expected == Got, "argument count"); };
template <typename Got> struct result { static_assert(same<int, Got>::value, "result type"); };
template <typename...> struct list {};
template <int Index, typename List> struct nth { using type = absent; };
template <typename First, typename... Rest> struct nth<0, list<First, Rest...>> { using type = First; };
template <int Index, typename First, typename... Rest>
struct nth<Index, list<First, Rest...>> : nth<Index - 1, list<Rest...>> {};
template <typename Function> struct function { static_assert(same<Function, void>::value, "not a function"); };
template <typename Result, typename... Arguments> struct function<Result (*)(Arguments...)> {
  using of_result = Result;
  using of_arguments = list<Arguments...>;
  static constexpr int number = sizeof...(Arguments);
};
template <typename Result, typename... Arguments>
struct function<Result (*)(Arguments...) noexcept> : function<Result (*)(Arguments...)> {};
"""

_ARGUMENT = re.compile(r"\[with Index=(?P<index>\d+), Expected=.+?, Got=(?P<got>.+?)\]")
_COUNT = re.compile(r"\[with Expected=\d+, Got=(?P<got>\d+)\]")
_RESULT = re.compile(r"result<Got> \[with Got=(?P<got>.+?)\]")


def unit_source(task: Task) -> str:
    """The translation unit: the candidate's file, then the check of its interface against ``task``.

    Including the file, rather than appending to it, keeps an unterminated ``#if`` or comment from hiding the check.
    """
    types = [c_type for c_type, _ in task.parameters()]
    headers = [header for name, header in _HEADERS.items() if any(name in c_type for c_type in types)]
    lines = [
        f'#include "{SOURCE}"',
        f'#line 1 "{CHECK}"',
        *(f"#undef {word}" for word in _WORDS),
        *(f"#include <{header}>" for header in headers),
        _MACHINERY,
        "using launch_function = function<decltype(&::launch)>;",
        f"template struct count<{len(types)}, launch_function::number>;",
        "template struct result<launch_function::of_result>;",
        *(
            f"template struct argument<{index}, {c_type}, nth<{index}, launch_function::of_arguments>::type>;"
            for index, c_type in enumerate(types)
        ),
        "}",
        f'extern "C" size_t workspace_bytes({", ".join(["int"] * len(task.sizes))});',
        "",
    ]
    return "\n".join(lines)


def contract_violation(found: Sequence[Diagnostic], task: Task) -> Rejection | None:
    """What the check complained about, or None if it did not."""
    texts = [f"{item.text} {item.context}" for item in found if item.file == CHECK and item.severity == "error"]
    if not texts:
        return None
    return _refuse(next(_explanations(texts, task)), task)


def linkage_violation(exported: frozenset[str], task: Task) -> Rejection | None:
    """Whether ``launch`` cannot be found by name in the host library although it exists."""
    if "launch" in exported:
        return None
    return _refuse('launch is not visible by its name; declare it extern "C" and neither static nor hidden', task)


def signature(task: Task) -> str:
    """The declaration a candidate must define."""
    return f'extern "C" int launch({", ".join(f"{c_type} {name}" for c_type, name in task.parameters())})'


def _explanations(texts: list[str], task: Task) -> Iterator[str]:
    """Sentences without a full stop, the most telling first; always at least one."""
    parameters = task.parameters()
    whole = "\n".join(texts)
    if "workspace_bytes" in whole:
        yield f"workspace_bytes must be declared as {_workspace_signature(task)}"
    if re.search(r'has no "?launch"?|identifier "launch" is undefined|no member "launch"', whole):
        yield 'the source defines no function named launch at global scope'
    if "overloaded" in whole:
        yield "launch is overloaded; there must be one function of that name"
    if "not a function" in whole or "of type class template" in whole:
        yield "launch is not a function"
    count, argument, result = _COUNT.search(whole), _ARGUMENT.search(whole), _RESULT.search(whole)
    differs = ""
    if argument:
        index = int(argument["index"])
        expected, name = parameters[index]
        differs = f"argument {index + 1} ({name}) of launch is {argument['got']}, expected {expected}"
    if count:
        start = f"launch takes {count['got']} arguments, expected {len(parameters)}"
        yield f"{start}; {differs}" if differs else start
    if differs:
        yield differs
    if result:
        yield f"launch returns {result['got']}, expected int"
    yield f"the interface of launch could not be checked ({texts[0]})"


def _workspace_signature(task: Task) -> str:
    return f'extern "C" size_t workspace_bytes({", ".join(f"int {name}" for name in task.sizes)})'


def _refuse(explanation: str, task: Task) -> Rejection:
    # A sentence may begin with a C identifier, whose case must stay.
    first = explanation[0] if explanation.startswith(("launch", "workspace_bytes")) else explanation[0].upper()
    reason = f"{first}{explanation[1:]}."
    return Rejection(outcome=Outcome.CONTRACT_ERROR, reason=reason, advice=f"Define {signature(task)}.")
