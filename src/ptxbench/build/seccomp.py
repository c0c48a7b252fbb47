"""The system-call filter of the sandbox, as classic BPF built here (x86-64 Linux).

Namespaces already take the network, the files and the other processes away. The filter removes kernel interfaces that a
compiler or a launcher never needs and that have a history of escapes, and the ways to hold memory that the watchdog
cannot see (memfd, System V shared memory). Numbers are those of `asm/unistd_64.h`.
"""

from __future__ import annotations

import errno
import struct

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
# Offsets in `struct seccomp_data`: number, architecture, low half of the first argument.
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16

_CLONE, _FORK, _VFORK, _CLONE3 = 56, 57, 58, 435
_SETPGID, _SETSID = 109, 112
# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACE_FLAGS = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000

DENIED: dict[str, int] = {
    "shmget": 29, "socket": 41, "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103, "personality": 135,
    "modify_ldt": 154, "pivot_root": 155, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227,
    "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256,
    "unshare": 272, "vmsplice": 278, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321,
    "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438,
    "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
}


def filter_program(*, single_process: bool, keep_session: bool) -> bytes:
    """The filter as an array of `struct sock_filter`, as `prctl(PR_SET_SECCOMP)` and ``bwrap --seccomp`` read it.

    Denied calls fail with EPERM. ``clone3`` fails with ENOSYS, upon which libc uses ``clone``, whose flags can be
    checked: new namespaces are refused. With ``single_process`` no process and no thread can be created at all. With
    ``keep_session`` no process can leave its group and session, by which all of them are found where no process
    namespace holds them.
    """
    deny = _ERRNO | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, _ARCH_X86_64),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _KILL_PROCESS),
        *_refuse(_CLONE3, _ERRNO | errno.ENOSYS),
    ]
    refused = [*DENIED.values()]
    refused += (_CLONE, _FORK, _VFORK) if single_process else ()
    refused += (_SETPGID, _SETSID) if keep_session else ()
    for number in refused:
        program += _refuse(number, deny)
    program += [
        (_JUMP_EQUAL, 0, 3, _CLONE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS),
        (_RETURN, 0, 0, deny),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _refuse(number: int, action: int) -> list[tuple[int, int, int, int]]:
    return [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]
