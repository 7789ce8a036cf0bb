"""Has a process that nobody prepared run one Python statement, by its interpreter's own means.

From Python 3.14 on the interpreter has a way for that: ``sys.remote_exec``. Before, gdb stops the
process for a moment. It is stopped anywhere: inside ``malloc``, in a call without the interpreter's
lock, in a system call. So nothing of Python runs there. gdb only puts the statement into memory of
its own (``mmap`` takes no lock) and has the interpreter take note of a pending call
(``Py_AddPendingCall`` allocates nothing): the main thread runs it between two instructions, where
it would run a signal's handler, long after gdb has let go.

A main thread that waits, in ``time.sleep`` or for a lock or a socket, comes to no such place. Where
it waits in a call of the interpreter's own, which lets other threads run meanwhile and so may run
the statement itself, gdb has it do so. Which waits those are follows from what the thread called:
never one that waits for the interpreter's lock, or inside another library.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leakscope.model.errors import LeakscopeError

GDB = "gdb"
PAGE_BYTES = 4096
STOP_SECONDS = 60.0
"""So long gdb may take over one command; a debugger that is killed would leave a thread in the
middle of a call, so what has been begun is waited for."""
_OPTIONS = (
    "-nx", "-q", "--interpreter=mi2",
    "-iex", "set auto-load off",
    "-iex", "set auto-solib-add off",
    "-iex", "set debuginfod enabled off",
    "-iex", "set confirm off",
    "-iex", "set print elements 0",
)  # fmt: skip
"""Symbols are read of the interpreter and the C library alone: those of torch take seconds, and the
process stands still meanwhile."""
_WITH_SYMBOLS = ("libpython", "/libc[.-]", "libpthread", "ld-musl")
_WAITS = re.compile(
    r"nanosleep|select|poll|epoll_p?wait|sem_\w*wait|accept|recv|^_*(?:GI_*)?(?:libc_)?read$|"
    r"wait4|waitpid|waitid|sigtimedwait|sigwait|pause|do_futex_wait|futex_abstimed_wait"
)
"""Calls of the C library around which the interpreter gives its lock away."""
_NEVER = re.compile(r"cond_|lll_|mutex|alloc|free|_IO_|_dl_|dlopen|getaddrinfo")
"""What a thread does that waits for the interpreter's lock, or for one of the C library's."""
_INTERPRETER = re.compile(r"/libpython[^/]*$|/lib-dynload/[^/]*$|/uvloop/[^/]*$")
_CLIB = re.compile(r"/(?:libc|libpthread|ld-musl)[.-][^/]*$")
_FRAMES = 24


class DebuggerError(LeakscopeError):
    """The debugger could not do what it was to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, slug="attach-debugger")


@dataclass
class Injection:
    """A statement on its way into a process."""

    pid: int
    statement: str
    """Python source; ``{page}`` in it becomes the address of the memory that holds it."""
    page: int = 0
    is_pending: bool = False


def has_debugger() -> bool:
    """Return whether a debugger is installed."""
    return shutil.which(GDB) is not None


def deliver(injection: Injection) -> bool:
    """Run the statement in the process as soon as possible; return whether it has run already.

    Where it has not run, another call only looks whether the main thread waits by now. Raises
    DebuggerError where gdb may not stop the process, or doesn't find its interpreter.
    """
    with Gdb() as gdb:
        gdb.attach(injection.pid)
        try:
            if not gdb.call("int", "Py_IsInitialized"):
                raise DebuggerError("its interpreter is not up yet, or is shutting down")
            waits = gdb.is_waiting(injection.pid)
            if not injection.page:
                injection.page = _write(gdb, injection.statement)
            if waits:
                _run_now(gdb, injection.page)
            elif not injection.is_pending:
                gdb.call("int", "Py_AddPendingCall", "(void*)PyRun_SimpleString", injection.page)
                injection.is_pending = True
            return waits
        finally:
            gdb.detach()


def deliver_remotely(pid: int, script: Path, python: list[str]) -> None:
    """Run a script in a Python of 3.14 or newer, by ``sys.remote_exec``.

    ``pid`` is the number by which this interpreter knows the process, ``script`` a path as that
    knows it, ``python`` the command of an interpreter of its version. Raises ``DebuggerError``.
    """
    code = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
    command = [*python, "-I", "-c", code, str(pid), str(script)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise DebuggerError(f"{python[0]} can't be started ({fault.strerror})") from fault
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DebuggerError(f"sys.remote_exec refused: {last}")


def _write(gdb: Gdb, statement: str) -> int:
    page = gdb.call("void*", "mmap", 0, PAGE_BYTES, 3, 0x22, -1, 0)
    text = statement.replace("{page}", str(page)).encode() + b"\0"
    if len(text) > PAGE_BYTES:
        raise DebuggerError("its paths are too long")
    gdb.write(page, text)
    return page


def _run_now(gdb: Gdb, page: int) -> None:
    state = gdb.call("int", "PyGILState_Ensure")
    try:
        gdb.call("int", "PyRun_SimpleString", page)
    finally:
        gdb.call("void", "PyGILState_Release", state)


class Gdb:
    """A gdb, controlled through its machine interface."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C in the terminal must not break into what it does.
        self._process = subprocess.Popen(
            [GDB, *_OPTIONS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._pid = 0
        self._buffer = b""
        self._number = 0

    def __enter__(self) -> Gdb:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        try:
            assert process.stdin is not None
            process.stdin.write(b"-gdb-exit\n")
            process.stdin.close()
            process.wait(STOP_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            process.terminate()
            process.wait()

    def attach(self, pid: int) -> None:
        """Stop the process, and learn where its interpreter's functions are."""
        self._send(f"-target-attach {pid}")
        self._pid = pid
        self._send('-interpreter-exec console "handle all nostop noprint pass"')
        for library in _WITH_SYMBOLS:
            self._send(f'-interpreter-exec console "sharedlibrary {library}"')
        threads = self._send("-thread-info")
        found = re.search(rf'id="(\d+)",target-id="[^"]*(?:LWP|[Pp]rocess) {pid}\b', threads)
        if found:
            self._send(f"-thread-select {found.group(1)}")

    def detach(self) -> None:
        """Resume the process."""
        if self._pid:
            self._pid = 0
            self._send("-target-detach")

    def call(self, returns: str, function: str, *arguments: int | str) -> int:
        """Call a C function in the process and return what it returns."""
        kinds = ",".join(
            "void*" if isinstance(a, str) or a > 1 << 31 else "long" for a in arguments
        )
        values = ",".join(map(str, arguments))
        answer = self._send(
            f'-data-evaluate-expression "(({returns}(*)({kinds})){function})({values})"'
        )
        found = re.search(r'value="(0x[0-9a-f]+|-?\d+)', answer)
        return int(found.group(1), 0) if found else 0

    def write(self, address: int, content: bytes) -> None:
        """Write into the process' memory."""
        self._send(f"-data-write-memory-bytes {address:#x} {content.hex()}")

    def is_waiting(self, pid: int) -> bool:
        """Return whether the thread waits in a call in which the interpreter's lock is free."""
        return is_a_wait(self._frames(), Path(f"/proc/{pid}/maps").read_text(), _executable(pid))

    def _frames(self) -> list[tuple[int, str]]:
        answer = self._send(f"-stack-list-frames 0 {_FRAMES}")
        frames = re.findall(r'level="\d+",addr="(0x[0-9a-f]+)"(?:,func="([^"]*)")?', answer)
        return [(int(address, 16), name) for address, name in frames]

    def _send(self, command: str) -> str:
        self._number += 1
        process = self._process
        assert process.stdin is not None
        try:
            process.stdin.write(f"{self._number}{command}\n".encode())
            process.stdin.flush()
        except OSError as fault:
            raise DebuggerError("gdb ended") from fault
        while True:
            line = self._line()
            found = re.match(rf"{self._number}\^(\w+),?(.*)", line)
            if found and found.group(1) == "error":
                raise DebuggerError(_reason(found.group(2)))
            if found:
                return found.group(2)

    def _line(self) -> str:
        out = self._process.stdout
        assert out is not None
        while b"\n" not in self._buffer:
            select.select([out], [], [])
            piece = os.read(out.fileno(), 1 << 16)
            if not piece:
                raise DebuggerError("gdb ended")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")


def is_a_wait(frames: list[tuple[int, str]], maps: str, executable: str) -> bool:
    """Return whether a thread waits where the interpreter has given its lock away.

    By the addresses and names of its functions, the innermost first, what ``/proc/PID/maps`` says,
    and the path of the program there.
    """
    waits = False
    for address, name in frames:
        file = _file_at(address, maps)
        if not _CLIB.search(file):
            is_known = file == executable or _INTERPRETER.search(file) is not None
            return waits and is_known
        if _NEVER.search(name):
            return False
        waits = waits or _WAITS.search(name) is not None
    return False


def _file_at(address: int, maps: str) -> str:
    for line in maps.splitlines():
        words = line.split(None, 5)
        begin, _, end = words[0].partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return words[5] if len(words) > 5 else ""
    return ""


def _executable(pid: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/exe").readlink())
    return ""


def _reason(answer: str) -> str:
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', answer)
    return found.group(1).replace("\\n", " ").replace('\\"', '"') if found else answer
