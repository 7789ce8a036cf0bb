"""Waits for the user's program, hands on signals, and ends as the program ended."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn

from leakscope.model.run import ASKED_TO_END
from leakscope.probes.cgroup import memory_events
from leakscope.probes.signals import catches

HANDED_ON = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGXCPU,
    }
)
"""Signals that mean the program when they are sent to us. Those of job control aren't among them:
the terminal sends them to every process of the group."""

ASKED_FOR = frozenset({signal.SIGUSR1, signal.SIGUSR2})
"""Signals that programs take as requests, so only one that has a handler gets them from us. It may
not have it yet, or no longer, and then the request would be the death of it."""

_WITNESS_PATIENCE_S = 0.1


@dataclass(frozen=True)
class Ending:
    """How the program ended: by exit code or by signal."""

    exit_code: int
    """``128 + signal`` where a signal ended it, as shells have it."""
    signal: int | None = None
    oom_kills: int = 0
    """Processes of our control group that the kernel has killed for memory meanwhile."""
    limit_hits: int = 0
    """How often the group stood at its limit meanwhile."""

    @property
    def is_oom_killed(self) -> bool:
        """Whether the kernel killed the program for memory: by ``SIGKILL``, and it says so."""
        return self.signal == signal.SIGKILL and self.oom_kills > 0

    @property
    def is_killed(self) -> bool:
        """Whether a signal ended it that is no request to end."""
        return self.signal is not None and self.signal not in ASKED_TO_END

    def outcome(self) -> dict[str, str | int]:
        """Return what a run directory keeps of it."""
        told: dict[str, str | int] = {"exit_code": self.exit_code}
        if self.signal is not None:
            told["signal"] = self.signal
        if self.is_oom_killed:
            told["oom_killed"] = 1
        if self.oom_kills:
            told["oom_kills"] = self.oom_kills
        if self.limit_hits:
            told["limit_hits"] = self.limit_hits
        return told


def supervise(command: list[str]) -> Ending:
    """Run a command in our own process group and terminal until it ends."""
    before = memory_events()
    status = _run(command)
    after = memory_events()
    kills = _more(before.oom_kills, after.oom_kills)
    hits = _more(before.limit_hits, after.limit_hits)
    if os.WIFEXITED(status):
        return Ending(os.WEXITSTATUS(status), oom_kills=kills, limit_hits=hits)
    number = os.WTERMSIG(status)
    return Ending(128 + number, signal=number, oom_kills=kills, limit_hits=hits)


def end_as(ending: Ending) -> NoReturn:
    """End this process by the same signal or exit code, without a core dump of ours."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    if ending.signal is None:
        os._exit(ending.exit_code)
    # One byte: too little for any core file, and the kernel's sign not to start a core handler.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
    if ending.signal not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(ending.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ending.signal})
    os.kill(os.getpid(), ending.signal)
    os._exit(ending.exit_code)


def _more(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else max(0, after - before)


def _run(command: list[str]) -> int:
    """Return the wait status. Signals are taken one by one, so that none is lost or races."""
    watched = {*HANDED_ON, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        with Witness() as witness:
            child = os.posix_spawn(command[0], command, os.environ, setsigmask=mask)
            return _wait(child, witness, watched)
    finally:
        while signal.sigtimedwait(watched, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: int, witness: Witness, watched: set[signal.Signals]) -> int:
    while True:
        told = signal.sigwaitinfo(watched)
        if told.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif told.si_code <= 0 and not witness.was_hit() and _is_for(child, told.si_signo):
            # A positive code means the kernel: the terminal, which tells the child itself.
            os.kill(child, told.si_signo)


def _is_for(child: int, number: int) -> bool:
    """Return whether the child should get a signal that was sent to us."""
    return number not in ASKED_FOR or catches(child, number) is not False


class Witness:
    """An idle process of our group, which dies of any signal that was sent to the whole group.

    A signal sent to us alone must be handed on; one sent to the group has reached the program
    already, and a second Ctrl-C would break into its cleaning up. The kernel doesn't say which it
    was.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._read_end, self._write_end = os.pipe()

    def __enter__(self) -> Witness:
        self._station()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._write_end)
        os.close(self._read_end)
        os.waitpid(self._pid, 0)

    def was_hit(self) -> bool:
        """Return whether it died of a signal just now; if so, another takes its place."""
        deadline = time.monotonic() + _WITNESS_PATIENCE_S
        while time.monotonic() < deadline:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._station()
                return True
            time.sleep(0.002)
        return False

    def _station(self) -> None:
        self._pid = os.fork()
        if self._pid:
            return
        try:
            os.close(self._write_end)
            for number in HANDED_ON:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
            for descriptor in {0, 1, 2} - {self._read_end}:
                os.close(descriptor)
            os.read(self._read_end, 1)
        finally:
            os._exit(0)
