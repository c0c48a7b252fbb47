"""Length-prefixed messages over a pair of pipes: a JSON header and a blob, with deadlines.

A frame is ``<IQ`` (bytes of the header, bytes of the blob), the header as UTF-8 JSON (one object), the blob. The other
end may be a process whose memory a hostile kernel could write to: lengths are bounded and nothing but JSON is parsed.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

_FRAME = struct.Struct("<IQ")
_PIPE_BYTES = 1 << 20
MAX_HEADER_BYTES = 256 << 20
MAX_BLOB_BYTES = 16 << 30


class ChannelError(Exception):
    """The other end sent something that is no frame."""


class Message(NamedTuple):
    """One frame."""

    header: dict[str, Any]
    blob: bytearray


class Channel:
    """One end. It owns both descriptors and makes them non-blocking."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(
        self, header: Mapping[str, Any], blob: bytes | bytearray | memoryview = b"", deadline: float | None = None
    ) -> None:
        """Sends one frame. ``deadline`` is in `time.monotonic` seconds; `TimeoutError` after it, `BrokenPipeError`
        when the other end is gone."""
        text = json.dumps(header).encode()
        self._write(_FRAME.pack(len(text), len(blob)) + text, deadline)
        self._write(blob, deadline)

    def receive(self, deadline: float | None = None) -> Message:
        """The next frame. `TimeoutError` after the deadline, `EOFError` when the other end is gone, `ChannelError`
        for anything that is no frame."""
        header_bytes, blob_bytes = _FRAME.unpack(self._read(_FRAME.size, deadline))
        if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
            raise ChannelError(f"a frame of {header_bytes} + {blob_bytes} bytes is larger than any real one")
        try:
            header: object = json.loads(self._read(header_bytes, deadline))
        except ValueError as error:
            raise ChannelError("a frame's header is not JSON") from error
        if not isinstance(header, dict):
            raise ChannelError("a frame's header is not a JSON object")
        return Message(cast("dict[str, Any]", header), self._read(blob_bytes, deadline))

    def close(self) -> None:
        """Closes both descriptors."""
        os.close(self._reader)
        os.close(self._writer)

    def _write(self, data: bytes | bytearray | memoryview, deadline: float | None) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            _wait(self._writer, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._writer, rest[:_PIPE_BYTES]) :]
            except BlockingIOError:
                continue

    def _read(self, count: int, deadline: float | None) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        filled = 0
        while filled < count:
            _wait(self._reader, select.POLLIN, deadline)
            try:
                got = os.readv(self._reader, [view[filled : filled + _PIPE_BYTES]])
            except BlockingIOError:
                continue
            if got == 0:
                raise EOFError("the other end closed its pipe")
            filled += got
        return data


def _wait(descriptor: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
    if not poll.poll(left_ms):
        raise TimeoutError("the other end did not answer in time")
