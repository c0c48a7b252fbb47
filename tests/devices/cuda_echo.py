"""A device program without a device, to test the parent's side: ``echo`` answers, ``sleep`` does not."""

from __future__ import annotations

import sys
import time
from typing import Any

from ptxbench.core import DeviceError
from ptxbench.devices.cuda.channel import Message
from ptxbench.devices.cuda.server import Handler, serve_program


def hello(request: Message) -> tuple[dict[str, Any], bytes]:
    return {"device": {"name": "none"}, "driver_start_s": 0.0}, b""


def echo(request: Message) -> tuple[dict[str, Any], bytes]:
    return {"value": request.header["value"]}, bytes(request.blob)


def run(request: Message) -> tuple[dict[str, Any], bytes]:
    time.sleep(60)
    return {}, b""


def start() -> dict[str, Handler]:
    if sys.argv[3:] == ["broken"]:
        raise DeviceError("There is no such device.")
    return {"hello": hello, "echo": echo, "run": run}


if __name__ == "__main__":
    serve_program(sys.argv[1:3], start)
