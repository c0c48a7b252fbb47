"""Framing over pipes, and the life of a child process with a device."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ptxbench.core import DeviceError, Fault, FaultKind
from ptxbench.devices.cuda.channel import Channel, ChannelError, Message
from ptxbench.devices.cuda.driver import CudaError
from ptxbench.devices.cuda.process import ExecutorProcess, child_environment
from ptxbench.devices.cuda.server import serve


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    there, back = os.pipe(), os.pipe()
    parent, child = Channel(back[0], there[1]), Channel(there[0], back[1])
    yield parent, child
    for end in (parent, child):
        end.close()


def test_a_frame_arrives_as_it_was_sent(ends: tuple[Channel, Channel]) -> None:
    parent, child = ends
    parent.send({"op": "write", "buffer": "Ä"}, b"\x00\xff" * 10)
    message = child.receive(time.monotonic() + 5)
    assert message.header == {"op": "write", "buffer": "Ä"}
    assert message.blob == b"\x00\xff" * 10


def test_a_blob_larger_than_the_pipe_passes_while_the_other_end_reads(ends: tuple[Channel, Channel]) -> None:
    parent, child = ends
    blob = os.urandom(5 << 20)
    sender = threading.Thread(target=parent.send, args=({"n": 1}, blob))
    sender.start()
    assert child.receive(time.monotonic() + 20).blob == blob
    sender.join()


def test_frames_do_not_run_into_each_other(ends: tuple[Channel, Channel]) -> None:
    parent, child = ends
    for number in range(3):
        parent.send({"n": number}, bytes([number]) * number)
    assert [child.receive(time.monotonic() + 5) for _ in range(3)] == [
        ({"n": 0}, b""), ({"n": 1}, b"\x01"), ({"n": 2}, b"\x02\x02")
    ]


def test_silence_ends_at_the_deadline(ends: tuple[Channel, Channel]) -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        ends[0].receive(started + 0.1)
    assert 0.1 <= time.monotonic() - started < 1


def test_a_reader_that_does_not_read_ends_the_send_at_the_deadline(ends: tuple[Channel, Channel]) -> None:
    with pytest.raises(TimeoutError):
        ends[0].send({}, bytes(8 << 20), time.monotonic() + 0.1)


def test_a_closed_pipe_is_the_end() -> None:
    there, back = os.pipe(), os.pipe()
    parent = Channel(back[0], there[1])
    os.close(there[0])
    os.close(back[1])
    with pytest.raises(EOFError):
        parent.receive(time.monotonic() + 5)
    with pytest.raises(BrokenPipeError):
        parent.send({})
    parent.close()


@pytest.mark.parametrize("frame", [
    struct.pack("<IQ", 1 << 31, 0),
    struct.pack("<IQ", 2, 1 << 60) + b"{}",
    struct.pack("<IQ", 2, 0) + b"[]",
    struct.pack("<IQ", 3, 0) + b"{,}",
    struct.pack("<IQ", 2, 0) + b"\xff\xfe",
])
def test_anything_but_a_frame_is_refused(frame: bytes) -> None:
    there, back = os.pipe(), os.pipe()
    parent = Channel(back[0], there[1])
    os.write(back[1], frame)
    with pytest.raises(ChannelError):
        parent.receive(time.monotonic() + 5)
    parent.close()
    os.close(there[0])
    os.close(back[1])


def answer(request: Message) -> tuple[dict[str, Any], bytes]:
    return {"seen": request.header["value"]}, bytes(request.blob)


def fault(request: Message) -> tuple[dict[str, Any], bytes]:
    raise CudaError("cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered")


def failure(request: Message) -> tuple[dict[str, Any], bytes]:
    raise CudaError("cuModuleLoadData", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available")


def test_a_server_answers_until_a_fault_ends_it(ends: tuple[Channel, Channel]) -> None:
    parent, child = ends
    server = threading.Thread(target=serve, args=(child, {"answer": answer, "fault": fault, "failure": failure}))
    server.start()
    deadline = time.monotonic() + 10
    parent.send({"op": "answer", "value": 3}, b"blob")
    assert parent.receive(deadline) == ({"seen": 3}, b"blob")
    parent.send({"op": "failure"})
    assert "cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU" in parent.receive(deadline).header["error"]
    parent.send({"op": "fault"})
    found = Fault.model_validate(parent.receive(deadline).header["fault"])
    assert found.kind is FaultKind.ILLEGAL_ADDRESS
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in found.message
    server.join(10)
    assert not server.is_alive()


def test_no_secret_reaches_the_child() -> None:
    environment = {"PATH": "/bin", "LD_LIBRARY_PATH": "/l", "CUDA_VISIBLE_DEVICES": "0", "API_KEY": "s", "HOME": "/h"}
    assert child_environment(environment) == {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/l", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/h"
    }


def test_a_child_that_cannot_start_is_a_device_error_with_its_last_words() -> None:
    with pytest.raises(DeviceError, match="No module named"):
        ExecutorProcess("ptxbench.no_such_module", start_seconds=20)
