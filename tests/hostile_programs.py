"""Programs that a model may write by accident or an attacker on purpose, each with the statuses that may come of it."""

FAILS = ("failed",)
ENDS = ("failed", "timeout", "crash")
ANY = ("passed", "failed", "timeout", "crash")

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    # processes
    "fork bomb": ("import os\nwhile True:\n    os.fork()", FAILS),
    "fork": ("import os\nif os.fork():\n    pass", FAILS),
    "double fork with a session": (
        "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        time.sleep(100)\ntime.sleep(1)",
        FAILS,
    ),
    "session": ("import os\nos.setsid()", FAILS),
    "process group": ("import os\nos.setpgid(0, 1)", FAILS),
    "vfork by spawn": ("import os\nos.posix_spawn('/bin/sh', ['sh'], {})", FAILS),
    "subprocess": ("import subprocess\nsubprocess.run(['sleep', '100'])", FAILS),
    "shell": ("import os\nassert os.system('true') == 0", FAILS),
    "exec": ("import os\nos.execv('/bin/sh', ['sh', '-c', 'sleep 100'])", FAILS),
    "multiprocessing": ("import multiprocessing as m\nm.Process(target=print).start()", FAILS),
    "thread bomb": ("import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()", ENDS),
    "thread that stays": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()",
        ("passed", "timeout"),
    ),
    # signals
    "kill everything": ("import os\nos.kill(-1, 9)", FAILS),
    "kill everything by its own loop": (
        "import os\nfor p in range(2, 70000):\n    try:\n        os.kill(p, 9)\n    except OSError as e:\n"
        "        assert not isinstance(e, PermissionError)",
        FAILS,
    ),
    "kill the parent": ("import os\nos.kill(os.getppid(), 9)", FAILS),
    "kill the group": ("import os\nos.killpg(0, 9)", FAILS),
    "stop the parent": ("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)", FAILS),
    "signal by raw call": (
        "import ctypes\nassert ctypes.CDLL(None).syscall(62 if ctypes.sizeof(ctypes.c_void_p) else 0, -1, 9) == 0",
        FAILS,
    ),
    "ignore every signal": (
        "import signal\nfor s in range(1, 32):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n    except OSError:\n"
        "        pass\n"
        "while True:\n    pass",
        ("timeout",),
    ),
    "abort": ("import os\nos.abort()", ("crash",)),
    "segfault": ("import ctypes\nctypes.string_at(0)", ("crash",)),
    # time
    "endless loop": ("while True:\n    pass", ("timeout",)),
    "sleep past the limit": ("import time\ntime.sleep(1000)", ("timeout",)),
    "endless loop in C": ("sum(iter(int, 1))", ("timeout",)),
    "endless regular expression": ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", ("timeout",)),
    "a big power": ("print(len(str(9 ** 9 ** 9)))", ENDS),
    "waits for input": ("import sys\nsys.stdin.read()\nassert input()", FAILS),
    "waits for a lock": ("import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", ("timeout",)),
    "exit handler that never ends": ("import atexit, time\natexit.register(time.sleep, 1000)", ("passed",)),
    "finally that never ends": ("try:\n    1 / 0\nfinally:\n    while True:\n        pass", ("timeout",)),
    "catches everything": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        ("timeout",),
    ),
    # memory
    "a terabyte of memory": ("x = bytearray(10 ** 12)", FAILS),
    "memory bit by bit": ("x = []\nwhile True:\n    x.append('a' * 10 ** 6)", ENDS),
    "doubling list": ("x = [0]\nwhile True:\n    x += x", ENDS),
    "mapped memory": ("import mmap\nx = [mmap.mmap(-1, 1 << 28) for _ in range(99)]", FAILS),
    "deep recursion": ("def f():\n    return f() + 1\nf()", FAILS),
    "deeper recursion": ("import sys\nsys.setrecursionlimit(10 ** 9)\nf = lambda n: f(n + 1) + 1\nf(0)", ENDS),
    "deep nesting to compile": ("eval('(' * 10 ** 5 + ')' * 10 ** 5)", ENDS),
    "deep repr": ("x = []\nfor _ in range(10 ** 6):\n    x = [x]\nrepr(x)", ENDS),
    # output and files
    "endless output": ("while True:\n    print('x' * 1000)", ENDS),
    "endless errors": ("import sys\nwhile True:\n    sys.stderr.write('x' * 1000)", ENDS),
    "output without a line break": ("import sys\nwhile True:\n    sys.stdout.write('x' * 10 ** 6)", ENDS),
    "a terabyte file": ("open('x', 'wb').truncate(10 ** 12)", FAILS),
    "a file that grows": ("f = open('x', 'wb')\nwhile True:\n    f.write(b'x' * 10 ** 6)", ENDS),
    "many open files": ("x = [open(str(n), 'w') for n in range(1000)]", FAILS),
    "folders a thousand deep": ("import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')", ANY),
    "a folder without rights": ("import os\nos.makedirs('a/b')\nos.chmod('a/b', 0)\nos.chmod('a', 0)", ("passed",)),
    "a link to elsewhere": ("import os\nos.symlink('/etc', 'e')\nopen('e/passwd')", FAILS),
    "a pipe nobody reads": ("import os\nos.mkfifo('p')\nopen('p', 'w')", ANY),
    # outside
    "reads outside": ("open('/etc/passwd').read()", FAILS),
    "lists outside": ("import os\nos.listdir('/tmp')", FAILS),
    "reads other processes": ("open('/proc/1/environ').read()", FAILS),
    "reads its parent's memory": ("import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')", FAILS),
    "writes outside": ("open('/tmp/gmc-hostile', 'w')", FAILS),
    "writes to the folder above": ("open('../job', 'w')", FAILS),
    "removes its own folder": ("import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)", ANY),
    "socket": ("import socket\nsocket.create_connection(('1.1.1.1', 80), 1)", FAILS),
    "unix socket": ("import socket\nsocket.socket(socket.AF_UNIX)", FAILS),
    "fetches a page": ("import urllib.request\nurllib.request.urlopen('http://localhost:8000', timeout=1)", FAILS),
    "raises its own limits": ("import resource as r\nr.setrlimit(r.RLIMIT_CPU, (9999, 9999))", FAILS),
    "lowers its parent's limits": ("import os, resource as r\nr.prlimit(os.getppid(), r.RLIMIT_NOFILE, (0, 0))", FAILS),
    "another user": ("import os\nos.setuid(12345)\nassert os.getuid() != 12345", FAILS),
    "traces its parent": ("import ctypes, os\nassert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0", FAILS),
    "new namespaces": ("import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0", FAILS),
    # cheating
    "leaves before the tests": ("import os\nos._exit(0)", FAILS),
    "exits before the tests": ("import sys\nsys.exit(0)", FAILS),
    "closes every descriptor": ("import os\nos.closerange(0, 64)", ANY),
    "breaks print": ("import builtins\nbuiltins.print = None", ("passed",)),
}
"""By what they do: the source, and how a run of it followed by `pass` as a test may end."""
