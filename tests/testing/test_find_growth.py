"""`find_growth` names what grows with every call, and accuses nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import leakscope

HERE = Path(__file__).parent
LEAKS = HERE / "leaking.py"
CLEAN = HERE.parents[1] / "benchmarks" / "clean_functions.py"
LINES = LEAKS.read_text().splitlines()

PLANTED = {
    "bytes_objects": ("leaking.PIECES", "PIECES.append"),
    "the_same_object": ("leaking.SAME", "SAME.append"),
    "lists": ("leaking.LISTS", "LISTS.append"),
    "dict_entries": ("leaking.BY_KEY", "BY_KEY[next"),
    "set_members": ("leaking.MEMBERS", "MEMBERS.add"),
    "closures": ("leaking.CALLBACKS", "CALLBACKS.append"),
    "exceptions": ("leaking.ERRORS", "ERRORS.append"),
    "a_buffer": ("leaking.BUFFER", "BUFFER.extend"),
    "text": ("leaking.TEXT", "TEXT +="),
    "a_chain": ("leaking.HEAD", "HEAD = Node"),
    "a_chain_of_pairs": ("leaking.PAIRS", "PAIRS = (PAIRS"),
    "a_chain_of_dicts": ("leaking.RECORDS", "RECORDS = {"),
    "an_attribute": ("Server.seen", "self.seen[number]"),
    "a_cache": ("cached", "cached(next(NUMBERS))"),
    "a_default": ("a_default.gathered", "gathered.append"),
    "handlers": ("logging.Logger.manager.loggerDict['leaking'].handlers", "addHandler"),
    "loggers": ("logging.Logger.manager.loggerDict", "getLogger(f"),
    "new_names": ("leaking.globals()", 'globals()[f"NAME_'),
    "buffers_at_exit": ("atexit", "atexit.register(len"),
    "callbacks_at_exit": ("What native code holds (functools.partial)", None),
}
SMALL = {"the_same_object": 8, "handlers": 190, "loggers": 350}
"""Where a call leaves less than a kilobyte, and how much about."""


def found_in(file: Path, *names: str) -> dict[str, list[dict[str, Any]]]:
    command = [sys.executable, str(HERE / "find_all.py"), str(file), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def planted() -> dict[str, list[dict[str, Any]]]:
    return found_in(LEAKS, *PLANTED)


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_leak_is_found_with_its_holder_line_and_rate(
    planted: dict[str, list[dict[str, Any]]], name: str
) -> None:
    holder, statement = PLANTED[name]
    (growth,) = planted[name]
    assert growth["holder"] == holder
    least = SMALL.get(name, 1000)
    assert 0.7 * least <= growth["bytes"] <= 2.2 * least
    if statement is None:  # nothing in the source refers to what native code holds
        assert growth["fed_by"] == ""
        return
    file, _, line = growth["fed_by"].rpartition(":")
    assert file == "leaking.py"
    assert statement in LINES[int(line) - 1]


@pytest.mark.slow
@pytest.mark.corpus
def test_clean_functions_and_look_alikes_are_not_accused() -> None:
    command = [sys.executable, str(CLEAN), "--runs", "63", "--fresh", "21"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "63 runs of 21 clean functions: 0 accused" in done.stdout


TORCH = """
import torch

model = torch.nn.Linear(16, 16)
kept = []


def tensors():
    kept.append(torch.zeros(256))


def hooks():
    model.register_forward_hook(lambda *_: None)


def trains():
    model(torch.rand(4, 16)).mean().backward()
    model.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.corpus
def test_tensors_and_hooks_are_found_and_training_is_clean(tmp_path: Path) -> None:
    file = tmp_path / "training.py"
    file.write_text(TORCH)
    found = found_in(file, "trains", "tensors", "hooks")
    assert found["trains"] == []
    (tensors,) = found["tensors"]
    assert tensors["holder"] == "training.kept"
    assert 1024 <= tensors["bytes"] < 1500
    assert tensors["objects"] == 1
    (hooks,) = found["hooks"]
    assert hooks["holder"] == "training.model._forward_hooks"


SHARES = """
from itertools import count

import torch
import torch.multiprocessing.reductions

numbers = count()


def shares():
    storage = torch.zeros(250).untyped_storage()
    ref = torch.multiprocessing.reductions.StorageWeakRef(storage)
    torch.multiprocessing.reductions.shared_cache[next(numbers)] = ref
"""


@pytest.mark.slow
def test_what_torch_remembers_of_shared_storages_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "sharing.py").write_text(SHARES)
    assert found_in(tmp_path / "sharing.py", "shares")["shares"] == []


def test_growth_is_a_sentence_with_holder_rate_and_line() -> None:
    (growth,) = found_in(LEAKS, "bytes_objects")["bytes_objects"]
    line = next(n for n, text in enumerate(LINES, 1) if "PIECES.append" in text)
    expected = f"leaking.PIECES grows by 1 KiB per call, fed by leaking.py:{line}"
    assert growth["sentence"] == expected
    assert growth["path"] == "leaking·PIECES"
    assert (growth["kind"], growth["objects"]) == ("list", 1)


BUS = """
class Bus:
    def __init__(self):
        self.heard = []

    def on_start(self, function): self.heard.append(function)
    def on_end(self, function): self.heard.append(function)
    def on_error(self, function): self.heard.append(function)
{more}

bus = Bus()


def subscribes():
    bus.on_error(lambda: None)
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "bus.py:6 or bus.py:7 or bus.py:8"),
        (
            "    def on_stop(self, function): self.heard.append(function)",
            "bus.py:6, bus.py:7, bus.py:8 or 1 more line",
        ),
    ],
)
def test_where_nothing_tells_which_line_feeds_none_is_left_out(
    tmp_path: Path, more: str, message: str
) -> None:
    (tmp_path / "bus.py").write_text(BUS.format(more=more))
    (growth,) = found_in(tmp_path / "bus.py", "subscribes")["subscribes"]
    assert growth["fed_by"] == message


NAMES = """
import random
import sys
from itertools import count

import naming

numbers = count()
same = bytes(1000)


def sets_attributes():
    setattr(naming, f"set_{next(numbers)}", [0] * 125)


def same_object():
    globals()[f"same_{next(numbers)}"] = same


def small():
    globals()[f"small_{next(numbers)}"] = 1


def defines():
    exec(f"def made_{next(numbers)}(): pass", globals())


def takes_back():
    number = next(numbers)
    globals()[f"passing_{number}"] = bytes(1000)
    globals().pop(f"passing_{number - 1}", None)


def replaces():
    globals()["only"] = bytes(random.randrange(5000))


def of_few():
    globals()[f"few_{next(numbers) % 40}"] = bytes(1000)


fills = iter(range(70))


def until_full():
    number = next(fills, None)
    if number is not None:
        globals()[f"filled_{number}"] = bytes(1000)


def seldom():
    number = next(numbers)
    if not number % 31:
        globals()[f"seldom_{number}"] = bytes(1000)


def lazily():
    global made_late
    if "made_late" not in globals() and next(numbers) % 37 == 0:
        made_late = [bytes(100_000)]
"""


def test_names_that_calls_add_to_a_module_are_found(tmp_path: Path) -> None:
    (tmp_path / "naming.py").write_text(NAMES)
    lines = NAMES.splitlines()
    least = {"sets_attributes": 1000, "same_object": 40, "small": 40, "defines": 100}
    for name, [growth] in found_in(tmp_path / "naming.py", *least).items():
        assert (growth["holder"], growth["objects"]) == ("naming.globals()", 1), name
        assert least[name] <= growth["bytes"] < 1.5 * least[name] + 100, name
        file, _, line = growth["fed_by"].rpartition(":")
        at = next(n for n, text in enumerate(lines, 1) if f"def {name}" in text)
        assert (file, int(line)) == ("naming.py", at + 1)


def test_names_that_come_and_go_or_end_at_a_number_are_no_growth(tmp_path: Path) -> None:
    (tmp_path / "naming.py").write_text(NAMES)
    found = found_in(
        tmp_path / "naming.py",
        *("takes_back", "replaces", "of_few", "until_full", "seldom", "lazily"),
    )
    assert not any(found.values()), found


AT_EXIT = """
import atexit
from atexit import register as at_end
from itertools import count

numbers = count()


def nothing(*_):
    pass


def by_another_name():
    at_end(nothing)


def decorated():
    @atexit.register
    def made():
        pass


def taken_back():
    atexit.register(nothing, bytes(1000))
    atexit.unregister(nothing)


def seldom():
    if next(numbers) % 31 == 0:
        atexit.register(nothing, bytes(1000))
"""


def test_functions_registered_at_exit_are_found_where_they_stay(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(AT_EXIT)
    leaks = {"by_another_name": "at_end(nothing)", "decorated": "@atexit.register"}
    found = found_in(tmp_path / "ending.py", *leaks, "taken_back", "seldom")
    assert found["taken_back"] == found["seldom"] == []
    lines = AT_EXIT.splitlines()
    for name, statement in leaks.items():
        (growth,) = found[name]
        assert (growth["holder"], growth["objects"]) == ("atexit", 1)
        at = next(n for n, text in enumerate(lines, 1) if statement in text)
        assert growth["fed_by"] == f"ending.py:{at}"


THREADS = """
import queue
import threading


class Writer:
    def __init__(self):
        self.pending = queue.Queue()
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self):
        while self.pending.get() is not None:
            pass


def waits_forever():
    Writer().pending.put("text")


def never_rings():
    timer = threading.Timer(3600, print)
    timer.daemon = True
    timer.start()


def ends():
    writer = Writer()
    writer.pending.put(None)
    writer.thread.join()
"""


@pytest.mark.slow
def test_threads_that_do_not_end_are_reported_once_with_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(THREADS)
    leaks = {"waits_forever": "threading.Thread(", "never_rings": "threading.Timer("}
    found = found_in(tmp_path / "waiting.py", *leaks, "ends")
    assert found["ends"] == []
    lines = THREADS.splitlines()
    for name, statement in leaks.items():
        (growth,) = found[name]
        kept = "What running threads hold (threading._active)"
        assert (growth["holder"], growth["objects"]) == (kept, 1)
        assert growth["bytes"] > 2000
        at = next(n for n, text in enumerate(lines, 1) if statement in text)
        assert growth["fed_by"] == f"waiting.py:{at}"


MAKES_CLASSES = """
from itertools import count

numbers = count()
kept = []
by_name = {}


def makes():
    kept.append(type("Record", (), {"payload": bytes(1000)}))


def makes_by_number():
    by_name[next(numbers)] = type(f"Record{next(numbers)}", (), {"payload": bytes(1000)})


def keeps_instances():
    class Local:
        pass

    one = Local()
    one.payload = bytes(1000)
    kept.append(one)


def factory():
    class Registry:
        entries = []

    return Registry()


registry = factory()


def registers():
    registry.entries.append(bytes(1000))


def lets_go():
    class Local:
        payload = bytes(1000)

    Local()
"""


@pytest.mark.slow
def test_classes_that_calls_make_are_reported_once_with_what_keeps_them(tmp_path: Path) -> None:
    file = tmp_path / "making.py"
    file.write_text(MAKES_CLASSES)
    holders = {
        "makes": {"making.kept", "What is taken by classes called Record"},
        "makes_by_number": {"making.by_name", "What is taken by classes called Record*"},
        "keeps_instances": {"making.kept"},
    }
    found = found_in(file, *holders, "registers", "lets_go")
    assert found["lets_go"] == []
    assert [growth["holder"] for growth in found["registers"]] == ["Registry.entries"]
    for name, expected in holders.items():
        (growth,) = found[name]
        assert growth["holder"] in expected
        assert growth["objects"] == 1
        assert 2500 <= growth["bytes"] < 4500
        line = int(growth["fed_by"].rpartition(":")[2])
        assert any(word in MAKES_CLASSES.splitlines()[line - 1] for word in ("kept", "by_name"))


AT_EXIT_TRACED = """
import atexit
import tracemalloc


def registers(function):
    atexit.register(function, bytes(1000))


tracemalloc.start()
for _ in range(100):
    registers(len)


def taken_back_where_many_stay():
    registers(print)
    atexit.unregister(print)


def done():
    atexit.unregister(len)
"""


@pytest.mark.slow
def test_what_was_registered_before_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(AT_EXIT_TRACED)
    found = found_in(tmp_path / "ending.py", "taken_back_where_many_stay", "done")
    assert not any(found.values()), found


ROOMY = """
import sys

kept = []
while len(kept) < 20_000 or sys.getsizeof(kept) == size:
    size = sys.getsizeof(kept)
    kept.append(None)


def fills_what_was_spare():
    kept.append(None)
"""


def test_a_list_with_room_to_spare_is_found_by_its_items(tmp_path: Path) -> None:
    (tmp_path / "roomy.py").write_text(ROOMY)
    (growth,) = found_in(tmp_path / "roomy.py", "fills_what_was_spare")["fills_what_was_spare"]
    assert (growth["holder"], growth["bytes"], growth["objects"]) == ("roomy.kept", 8, 1)


ALLOWED = """
import leakscope

PIECES = []


def leaks():
    PIECES.append(bytes(1000))


calls = []
print(leakscope.find_growth(lambda: calls.append(1), ignore="calls*", steps=4))
print(len(calls))
print(leakscope.find_growth(leaks, allow="2 KB", steps=4))
print(leakscope.find_growth(leaks, ignore=["PIECES"], steps=4))
print(leakscope.find_growth(lambda: PIECES.append(bytearray(2000)), ignore=["PIECES"], steps=4))
print(len(leakscope.find_growth(leaks, allow=100, steps=4)))
"""


@pytest.mark.slow
def test_what_is_allowed_or_ignored_is_no_growth(tmp_path: Path) -> None:
    file = tmp_path / "allowed.py"
    file.write_text(ALLOWED)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    # Warm-up, two counted rounds and three named ones, of which the last is four times as long.
    assert done.stdout.split() == ["[]", str(3 + 9 * 4), "[]", "[]", "[]", "1"]


@pytest.mark.slow
def test_what_a_scenario_raises_is_handed_on() -> None:
    calls: list[bytes] = []

    def fails() -> None:
        calls.append(bytes(1000))
        if len(calls) == 15:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leakscope.find_growth(fails, steps=2)
    # Of 3 + 9 * 2 calls these are in the last round, which traces allocations.
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is a whole number from 1 on, not 0"),
        ({"steps": True}, "steps is a whole number from 1 on, not True"),
        ({"warmup": -1}, "warmup is a whole number from 0 on, not -1"),
        ({"warmup": "3"}, "warmup is a whole number from 0 on, not '3'"),
        ({"allow": "much"}, "allow is a size such as '0 B' or '4 KB', not 'much'"),
        ({"allow": -1}, "allow is a size such as '0 B' or '4 KB', not -1"),
        ({"allow": None}, "allow is a size such as '0 B' or '4 KB', not None"),
        ({"ignore": [1]}, r"ignore is a list of names, not \[1\]"),
        ({"ignore": None}, "ignore is a list of names, not None"),
        ({"ignore": 5}, "ignore is a list of names, not 5"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    from leakscope.model.errors import LeakscopeError

    with pytest.raises(LeakscopeError, match=message):
        leakscope.find_growth(lambda: None, **options)
