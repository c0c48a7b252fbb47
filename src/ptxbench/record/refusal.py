"""How a refusal travels inside this room."""

from __future__ import annotations

from ptxbench.core import Outcome, Rejection


class Refusal(Exception):
    """Carries a `Rejection` from the place that found the fault to `Recorder.record`, which returns it as data.

    It never leaves the room. ``repeats`` is false where a limit of this machine decided; such a rejection is not
    cached.
    """

    def __init__(self, outcome: Outcome, reason: str, advice: str, *, repeats: bool = True) -> None:
        super().__init__(reason)
        self.rejection = Rejection(outcome=outcome, reason=reason, advice=advice)
        self.repeats = repeats


def contract_error(reason: str, advice: str) -> Refusal:
    """The launcher breaks the contract between candidate and judge."""
    return Refusal(Outcome.CONTRACT_ERROR, reason, advice)


def launch_error(reason: str, advice: str) -> Refusal:
    """The launch fails, or would fail on the target."""
    return Refusal(Outcome.LAUNCH_ERROR, reason, advice)
