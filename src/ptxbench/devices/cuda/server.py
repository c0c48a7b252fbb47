"""The child's side of every device program: one request, one reply, until the parent hangs up."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ptxbench.core import DeviceError, Fault, FaultKind
from ptxbench.devices.cuda.channel import Channel, Message
from ptxbench.devices.cuda.driver import CudaError

Handler = Callable[[Message], tuple[dict[str, Any], bytes | bytearray]]
"""Takes a request's header (without ``op``) and blob; returns the reply's."""


def connect(arguments: list[str]) -> Channel:
    """The channel to the parent, whose two descriptors are the arguments.

    Whatever libraries print goes to standard error; only frames go to the parent.
    """
    reader, writer = (int(argument) for argument in arguments)
    threading.Thread(target=_end_with_parent, args=(reader,), daemon=True).start()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return Channel(reader, writer)


def _end_with_parent(reader: int) -> None:
    """Ends this process when the parent is gone, even while the main thread waits for a kernel that never ends."""
    poll = select.poll()
    poll.register(reader, 0)
    poll.poll()
    os._exit(1)


def serve_program(arguments: list[str], start: Callable[[], Mapping[str, Handler]]) -> None:
    """A whole device program: connects, gets its device by ``start``, and serves. Why it cannot is its last word."""
    channel = connect(arguments)
    try:
        handlers = start()
    except DeviceError as error:
        sys.exit(str(error))
    serve(channel, handlers)


def serve(channel: Channel, handlers: Mapping[str, Handler]) -> None:
    """Answers requests until the parent closes the channel or a fault ends this process.

    A reply carries ``fault`` when the candidate misbehaved (after which the context is unusable and the process ends)
    or ``error`` when the infrastructure did.
    """
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        try:
            header, blob = handlers[request.header["op"]](request)
        except CudaError as error:
            if error.fault_kind is not None:
                channel.send({"fault": fault_of(error, error.fault_kind).model_dump(mode="json")})
                return
            channel.send({"error": str(error)})
        except DeviceError as error:
            channel.send({"error": str(error)})
        else:
            channel.send(header, blob)


def fault_of(error: CudaError, kind: FaultKind) -> Fault:
    """The candidate's fault in the words of the driver."""
    return Fault(kind=kind, message=f"The device reported {error.name} ({error.text}).")
