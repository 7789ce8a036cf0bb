"""A recording without a closing record: killed, still running, or on a machine out of sight."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from leakscope.model.record import EndRecord, HeaderRecord, RunManifest
from leakscope.model.run import Recording
from leakscope.recording import RecordingWriter, RunDirectory, open_run
from leakscope.recording.following import folder_goes_on, goes_on


def of_this_process(**changes: object) -> HeaderRecord:
    known = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    return HeaderRecord(**{**known, **changes})  # type: ignore[arg-type]


def test_a_process_that_lives_goes_on_until_it_says_that_it_has_ended(tmp_path):
    folder = RunDirectory.create(tmp_path, RunManifest()).path
    writer = RecordingWriter(folder, of_this_process())
    assert open_run(folder).main.goes_on is True
    writer.write(EndRecord(status="completed"))
    assert open_run(folder).main.goes_on is False
    writer.close()


def test_a_process_that_is_gone_or_a_zombie_does_not_go_on():
    child = subprocess.Popen([sys.executable, "-c", ""])
    recording = Recording(of_this_process(pid=child.pid, started=time.time() + 1))
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert goes_on(recording) is False
    child.wait()
    assert goes_on(recording) is False


def test_another_process_that_was_given_the_same_number_is_distinguished():
    began = psutil.Process().create_time()
    assert goes_on(Recording(of_this_process(started=began + 1))) is True
    assert goes_on(Recording(of_this_process(started=began - 60))) is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_clock_that_was_set_forward_meanwhile_ends_nothing(tmp_path, monkeypatch):
    folder = RunDirectory.create(tmp_path, RunManifest()).path
    writer = RecordingWriter(folder, of_this_process())
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time() + 3600)
    assert open_run(folder).main.goes_on is True
    writer.close()
    assert open_run(folder).main.goes_on is False


@pytest.mark.parametrize(("hours_ago", "expected"), [(0.1, None), (24, False)])
def test_of_another_machine_silence_alone_tells(hours_ago: float, expected: bool | None):
    started = time.time() - hours_ago * 3600
    header = of_this_process(host="another-machine", started=started)
    assert goes_on(Recording(header)) is expected


def test_of_a_folder_any_process_that_records_will_do(tmp_path):
    folder = RunDirectory.create(tmp_path, RunManifest()).path
    ended = RecordingWriter(folder, of_this_process(rank=0))
    ended.write(EndRecord(status="completed"))
    ended.close()
    assert folder_goes_on(folder) is False
    alive = RecordingWriter(folder, of_this_process(rank=1))
    assert folder_goes_on(folder) is True
    (folder / "outcome.json").write_text("{}")
    assert folder_goes_on(folder) is False
    alive.close()


def test_a_folder_whose_journals_are_damaged_does_not_go_on(tmp_path):
    folder = RunDirectory.create(tmp_path, RunManifest()).path
    (folder / "noise.journal").write_bytes(bytes(range(256)))
    (folder / "empty.journal").write_bytes(b"")
    assert folder_goes_on(folder) is False
