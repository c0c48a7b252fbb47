"""A model with tools: it writes one kernel file, tries it out, looks things up, and hands it to the judge."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from inspect_ai.model import ChatMessageTool, execute_tools
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolError, tool

from ptxbench.core import (
    Artifact,
    Candidate,
    Rejection,
    ReplyOutcome,
    ReplyRecord,
    StopReason,
    UnsupportedError,
    families_of,
    make_candidate,
)
from ptxbench.prompts import documents, feedback
from ptxbench.runners.attempt import Attempt
from ptxbench.runners.replies import read_reply
from ptxbench.runners.talking import Session
from ptxbench.tasks import get_task

LISTING_LINES = 120
"""Lines of machine code that one call shows at most."""


@dataclass
class Workspace:
    """The one file that an agent writes, and what its tools make of it. Methods block; tools run them in threads."""

    attempt: Attempt
    source: str = ""
    judged: set[str] = field(default_factory=set[str])

    def candidate(self) -> Candidate:
        """The file as a candidate; `ToolError` while it is empty."""
        if not self.source.strip():
            raise ToolError("there is no kernel yet; write it with write_kernel")
        run = self.attempt.run
        origin = f"{run.run}/{self.attempt.name}/draft"
        return make_candidate(self.source, task=self.attempt.task, target=run.target, origin=origin)

    def edit(self, old: str, new: str) -> str:
        """Replaces one piece of the file; `ToolError` unless it occurs exactly once."""
        found = self.source.count(old) if old else 0
        if found != 1:
            raise ToolError(f"old_text occurs {found} times in the kernel; give a piece that occurs exactly once")
        self.source = self.source.replace(old, new)
        return f"the kernel has {len(self.source.splitlines())} lines"

    def compiled(self) -> str:
        """What the compiler says."""
        result = self.attempt.bench.compile(self.candidate())
        lines = [f"line {r.line}: {r.severity}: {r.message}" for r in result.remarks]
        if isinstance(result, Rejection):
            return "\n".join([f"{result.outcome}: {result.reason} {result.advice}".strip(), *lines])
        facts = [
            f"{k.name}: {k.registers} registers, {k.static_shared} bytes of static shared memory, {k.local} bytes local"
            for k in result.kernels
        ]
        return "\n".join(["compiled", *facts, *lines])

    def simulated(self) -> str:
        """The verdict at the small sizes, in words."""
        candidate = self.candidate()
        try:
            verdict = self.attempt.bench.quick.evaluate(candidate)
        except UnsupportedError as error:
            raise ToolError(str(error)) from error
        return feedback(verdict, candidate.source, max_tokens=self.attempt.run.feedback_tokens)

    def judge(self) -> str:
        """The verdict that counts, in words; `ToolError` once the attempts are used up."""
        if self.attempt.stop is not None:
            raise ToolError("there are no attempts left")
        self.judged.add(self.candidate().digest)
        return self.attempt.judge(self.source)

    def finish(self, reply: ReplyRecord) -> None:
        """Ends the attempt with an answer without a tool: a kernel that was not judged yet is judged now.

        Of the answer's kernel and the file the answer's comes first, so that a model which ignores the tools is treated
        like any other.
        """
        self.attempt.hear(reply)
        reading = read_reply(reply)
        if reading.outcome is ReplyOutcome.EXTRACTED:
            self.source = reading.source
        if self.source.strip() and self.candidate().digest not in self.judged:
            self.judge()
        elif not self.attempt.turns or reading.outcome is ReplyOutcome.CONTEXT_OVERFLOW:
            self.attempt.take_no_kernel(reading)
        self.attempt.stop = self.attempt.stop or StopReason.SUBMITTED

    def machine_code(self, pattern: str, first: int) -> str:
        """Lines of the disassembly that match a regular expression, from the ``first``-th match (0-based) on."""
        result = self.attempt.bench.compile(self.candidate())
        if isinstance(result, Rejection):
            raise ToolError(f"{result.outcome}: {result.reason}")
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ToolError(f"pattern is no regular expression: {error}") from error
        lines = [line for line in listing(result) if wanted.search(line)]
        shown = lines[first : first + LISTING_LINES]
        rest = len(lines) - first - len(shown)
        return "\n".join(shown + ([f"({rest} more lines match)"] if rest > 0 else [])) or "no line matches"


def listing(artifact: Artifact) -> list[str]:
    """The machine code: offset, source line, instruction, and the family it counts for."""
    families = families_of(artifact.target)
    lines: list[str] = []
    for code in artifact.sass:
        lines.append(f"{code.kernel}:")
        for one in code.instructions:
            family = next((f.name for f in families if f.matches_sass(one.opcode)), "")
            line = one.frames[-1][1] if one.frames else ""
            text = f"{one.predicate} {one.opcode} {one.operands}".strip()
            lines.append(f"{one.offset:06x} {line:>5} {text} {family}".rstrip())
    return lines


def tools_of(workspace: Workspace, session: Session) -> list[Tool]:
    """The tools of one trajectory."""
    run, task = workspace.attempt.run, get_task(workspace.attempt.task)
    library = documents(task, run.target)

    @tool
    def write_kernel() -> Tool:
        async def execute(source: str) -> str:
            """Write the kernel file, replacing what was there.

            Args:
                source: The complete CUDA C++ source file.
            """
            workspace.source = source
            return f"the kernel has {len(source.splitlines())} lines"

        return execute

    @tool
    def edit_kernel() -> Tool:
        async def execute(old_text: str, new_text: str) -> str:
            """Replace one piece of the kernel file.

            Args:
                old_text: A piece that occurs exactly once in the file.
                new_text: What to put in its place.
            """
            return workspace.edit(old_text, new_text)

        return execute

    @tool
    def compile_kernel() -> Tool:
        async def execute() -> str:
            """Compile the kernel file: errors, warnings, registers and shared memory of each kernel."""
            return await session.work(workspace.compiled)

        return execute

    @tool
    def simulate_kernel() -> Tool:
        async def execute() -> str:
            """Run the kernel file at the small sizes on a simulator: results, synchronisation hazards, instructions.

            This does not use up an attempt.
            """
            return await session.work(workspace.simulated)

        return execute

    @tool
    def judge_kernel() -> Tool:
        async def execute() -> str:
            """Hand in the kernel file for judgement at all sizes. This uses up one attempt; the best attempt counts."""
            return await session.work(workspace.judge)

        return execute

    @tool
    def read_machine_code() -> Tool:
        async def execute(pattern: str, first: int = 0) -> str:
            """Show the machine code (SASS) of the kernel file, with source lines and instruction families.

            Args:
                pattern: A regular expression; only lines that match are shown ("." for all).
                first: How many matching lines to skip.
            """
            return await session.work(workspace.machine_code, pattern, max(0, first))

        return execute

    @tool
    def read_document() -> Tool:
        async def execute(name: str) -> str:
            """Read one of the notes on the hardware and on how fast kernels are built.

            Args:
                name: The note's name, or "list" for the names of all.
            """
            if name not in library:
                return "There are these notes: " + ", ".join(library)
            return library[name]

        return execute

    return [
        write_kernel(), edit_kernel(), compile_kernel(), simulate_kernel(), judge_kernel(), read_machine_code(),
        read_document(),
    ]  # fmt: skip


def agent(session: Session) -> Solver:
    """Calls the model until it answers without a tool, or a rule or a limit ends it."""

    @solver(name="ptxbench/agent")
    def build() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            attempt = session.begin(state)
            model, config = session.model(attempt)
            workspace = Workspace(attempt)
            tools = tools_of(workspace, session)
            while attempt.stop is None:
                output = await model.generate(state.messages, tools=tools, config=config)
                state.output = output
                state.messages.append(output.message)
                reply = session.reply(output, attempt)
                if not reply.tool_calls:
                    await session.work(workspace.finish, reply)
                    break
                attempt.hear(reply)
                done, _ = await execute_tools(state.messages, tools)
                state.messages += [message for message in done if isinstance(message, ChatMessageTool)]
            return state

        return solve

    return build()
