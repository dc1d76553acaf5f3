"""The process in which a response's code runs: `python -I jail.py JOB`, with the limits of JOB put on before any of that code.

A script by itself, which imports nothing of gmc. On Linux three layers of the kernel hold the code, each where it is there: the
process may start no other, send no signal and open no socket (seccomp); it may read Python and write its own folder alone
(Landlock); and it has no capabilities. They are conveniences of the kernel and no virtual machine; docs/rewards.md says what
they do not hold.
"""

import contextlib
import ctypes
import json
import math
import os
import platform
import resource
import struct
import sys

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 38, 22
_SIGKILL = 9
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x10000

# System calls by name: new processes and programs, signals to others, sessions, sockets, other processes' memory, and what
# outlives a process or goes around the filter.
_X86_64 = {
    "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129,
    "rt_tgsigqueueinfo": 297, "pidfd_send_signal": 424, "setsid": 112, "setpgid": 109, "socket": 41, "ptrace": 101,
    "process_vm_readv": 310, "process_vm_writev": 311, "io_uring_setup": 425, "keyctl": 250, "add_key": 248, "bpf": 321,
    "perf_event_open": 298, "userfaultfd": 323, "unshare": 272, "setns": 308, "shmget": 29, "msgget": 68, "semget": 64,
    "mq_open": 240,
}  # fmt: skip
_AARCH64 = {
    "execve": 221, "execveat": 281, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
    "pidfd_send_signal": 424, "setsid": 157, "setpgid": 154, "socket": 198, "ptrace": 117, "process_vm_readv": 270,
    "process_vm_writev": 271, "io_uring_setup": 425, "keyctl": 219, "add_key": 217, "bpf": 280, "perf_event_open": 241,
    "userfaultfd": 282, "unshare": 97, "setns": 268, "shmget": 194, "msgget": 186, "semget": 190, "mq_open": 180,
}  # fmt: skip
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64, 56, 302),
    "aarch64": (0xC00000B7, _AARCH64, 220, 261),
}
"""By machine: its number in the filter's data, the calls refused, and the numbers of clone and prlimit64."""
_CLONE3 = 435
_READ, _ALL_FILES, _FILE_ONLY = (1 << 2) | (1 << 3), (1 << 13) - 1, (1 << 0) | (1 << 1) | (1 << 2)
_SINCE = {2: 1 << 13, 3: 1 << 14}
"""Landlock: rights over files added by a version of its interface."""


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


def limit_resources(job: dict) -> None:  # type: ignore[type-arg]
    """CPU seconds, memory, size of a file, open files, processes (of other users than root), and no core."""
    cpu = math.ceil(job["cpu_seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_bytes"], job["file_bytes"]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))


def confine(folder: str) -> list[str]:
    """Put on what the kernel offers; returns what is held, of "files", "capabilities", "calls"."""
    if not sys.platform.startswith("linux"):
        return []
    libc = ctypes.CDLL(None, use_errno=True)
    held = []
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # a run that is killed leaves no code running
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return []
    if _restrict_files(libc, folder):
        held.append("files")
    if _drop_capabilities(libc):
        held.append("capabilities")
    if _filter_calls(libc):
        held.append("calls")
    return held


def _restrict_files(libc: ctypes.CDLL, folder: str) -> bool:
    create, add, restrict = 444, 445, 446
    version = libc.syscall(create, None, 0, 1)
    if version < 1:
        return False
    rights = _ALL_FILES | sum(bit for since, bit in _SINCE.items() if version >= since)
    attributes = struct.pack("Q", rights)
    rules = libc.syscall(create, attributes, len(attributes), 0)
    if rules < 0:
        return False
    library = {path for path in (*sys.path, sys.prefix, sys.base_prefix) if path}
    readable = dict.fromkeys((*library, "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime"), _READ)
    for path, allowed in {**readable, "/dev/urandom": _READ, "/dev/null": _FILE_ONLY, folder: rights}.items():
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        kept = allowed if os.path.isdir(path) else allowed & _FILE_ONLY
        libc.syscall(add, rules, 1, struct.pack("=Qi", kept, handle), 0)
        os.close(handle)
    return bool(libc.syscall(restrict, rules, 0) == 0)


def _drop_capabilities(libc: ctypes.CDLL) -> bool:
    return bool(libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6)) == 0)


def _filter_calls(libc: ctypes.CDLL) -> bool:
    if platform.machine() not in _MACHINES:
        return False
    architecture, refused, clone, prlimit = _MACHINES[platform.machine()]
    load, equal, at_least, bits, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    number, machine, first_argument = 0, 4, 16
    steps = [
        (load, 0, 0, machine),
        (equal, 1, 0, architecture),
        (answer, 0, 0, _KILL),
        (load, 0, 0, number),
        (at_least, 0, 1, 0x40000000),  # x32, another numbering of the same machine
        (answer, 0, 0, _KILL),
        (equal, 0, 1, _CLONE3),
        (answer, 0, 0, _ERRNO | _ENOSYS),  # its flags lie in memory, where no filter looks: clone is used instead
    ]
    for call in refused.values():
        steps += [(equal, 0, 1, call), (answer, 0, 0, _ERRNO | _EPERM)]
    # Threads may be made, and limits of this process read and lowered.
    steps += [(equal, 0, 4, clone), (load, 0, 0, first_argument), (bits, 1, 0, _CLONE_THREAD)]
    steps += [(answer, 0, 0, _ERRNO | _EPERM), (answer, 0, 0, _ALLOW)]
    steps += [(equal, 0, 3, prlimit), (load, 0, 0, first_argument), (equal, 1, 0, 0), (answer, 0, 0, _ERRNO | _EPERM)]
    steps += [(answer, 0, 0, _ALLOW)]
    filters = (_Filter * len(steps))(*(_Filter(*step) for step in steps))
    program = _Program(len(steps), filters)
    return bool(libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) == 0)


def main() -> None:
    """Run the code of the job on standard input's rest, and say at the end that all of it ran."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    done = os.dup(int(sys.argv[2]))
    os.close(int(sys.argv[2]))
    os.chdir(job["folder"])
    limit_resources(job)
    held = confine(job["folder"])
    if not set(job["needs"]) <= set(held):
        os.write(done, f"held {' '.join(held)}".encode())
        os._exit(3)
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    for name, source in (("response.py", job["code"]), *(("tests.py", test) for test in job["tests"])):
        exec(compile(source, name, "exec"), space)
    sys.stdout.flush()
    os.write(done, job["word"].encode())


if __name__ == "__main__":
    main()
