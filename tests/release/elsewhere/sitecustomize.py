"""Makes Linux look like another Unix to leakscope, and to nobody else: on ``PYTHONPATH``, it is
imported at start.

It takes away what macOS lacks: ``/proc``, ``/sys`` and ``/dev/shm``, functions of ``os`` and
``signal``, those of the C library that glibc alone has, the extensions of leakscope. psutil, which
is another program there, goes on reading ``/proc``. What the kernel of macOS does otherwise, such
as the order in which it hands out signals, nobody can tell from this.
"""

import builtins
import ctypes
import io
import os
import signal
import subprocess  # noqa: F401
import sys
import sysconfig

import psutil  # noqa: F401

sysconfig.get_config_vars()  # as it is on the platform that this is
sys.platform = os.environ.get("LOOKS_LIKE", "darwin")

_HIDDEN = ("/proc", "/sys", "/dev/shm", "/dev/nvidia")
_EXTENSIONS = {
    "leakscope.capture._returning",
    "leakscope.heap._native",
    "leakscope.probes._counting",
    "leakscope.probes._sampling",
}
_OF_GLIBC = {"mallinfo2", "mallinfo", "malloc_info", "malloc_trim", "prctl", "gnu_get_libc_version"}


def _is_hidden(path):
    try:
        text = os.fspath(path)
    except TypeError:  # a descriptor
        return False
    text = os.fsdecode(text)
    if not any(text == place or text.startswith(place) for place in _HIDDEN):
        return False
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "pathlib", "contextlib", "genericpath", "posixpath", "os", "shutil",
    ):  # fmt: skip
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "leakscope"


def _hiding(function):
    def hidden(path=".", *args, **named):
        if _is_hidden(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **named)

    return hidden


for module, names in (
    (os, ("open", "listdir", "scandir", "stat", "lstat", "readlink", "statvfs", "access")),
    (builtins, ("open",)),
    (io, ("open",)),
):
    for name in names:
        setattr(module, name, _hiding(getattr(module, name)))

for module, names in (
    (signal, ("sigwaitinfo", "sigtimedwait", "SIGPWR", "SIGSTKFLT", "SIGPOLL", "SIGRTMIN",
              "SIGRTMAX")),
    (os, ("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "eventfd",
          "posix_fadvise", "posix_fallocate", "O_TMPFILE", "O_PATH", "splice", "copy_file_range",
          "getrandom", "setns", "unshare", "RTLD_DEEPBIND", "waitid", "getresuid", "pipe2")),
):  # fmt: skip
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

_confstr = os.confstr


def confstr(name):
    if name == "CS_GNU_LIBC_VERSION":
        raise ValueError("unrecognized configuration name")
    return _confstr(name)


os.confstr = confstr


def uname():
    return os.uname_result(("Darwin", "host", "25.0.0", "Darwin Kernel Version 25.0.0", "arm64"))


os.uname = uname


class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in _OF_GLIBC:
            raise AttributeError(name)
        return super().__getattr__(name)


ctypes.CDLL = Library


class NotBuilt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _EXTENSIONS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NotBuilt)
