"""Runs a candidate's host code on fake addresses and keeps what it asked for as a launch plan."""

from ptxbench.record.recorder import Recorder, find_recorder, record

__all__ = ["Recorder", "find_recorder", "record"]
