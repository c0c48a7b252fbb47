"""Run as a program at the weak sandbox level: installs a system-call filter on itself and becomes the program given.

Usage: launcher.py FILTER_FD PROGRAM [ARGUMENT...]. Needs the standard library only.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_SIGKILL = 9
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _main() -> None:
    descriptor, command = int(sys.argv[1]), sys.argv[2:]
    code = os.pread(descriptor, 1 << 16, 0)
    os.close(descriptor)
    program = _Program(len(code) // _INSTRUCTION_BYTES, code)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    steps = (
        (_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0),
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    )
    for step in steps:
        if prctl(*step) != 0:
            sys.exit(f"launcher: prctl({step[0]}) failed: {os.strerror(ctypes.get_errno())}")
    os.execv(command[0], command)


if __name__ == "__main__":
    _main()
