"""Running models on tasks: conversations, agents with tools, external agents; records of what they did."""

from ptxbench.runners.bench import Bench
from ptxbench.runners.exporting import write_harbor_task
from ptxbench.runners.planning import (
    Pace,
    choose_tasks,
    header_text,
    make_prompts,
    prompt_uses,
    remaining,
    run_name,
    stored_prompts,
)
from ptxbench.runners.rejudging import Change, rejudge
from ptxbench.runners.starting import Continue, Question, ask, check_inspect, open_run

__all__ = [
    "Bench", "Change", "Continue", "Pace", "Question", "ask", "check_inspect", "choose_tasks", "header_text",
    "make_prompts", "open_run", "prompt_uses", "rejudge", "remaining", "run_name", "stored_prompts",
    "write_harbor_task",
]
