"""`leakscope mcp`: an agent's questions over stdio, by the SDK's own client, on recorded runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cli_runs import MIB, SOURCE, record_run

from leakscope.cli.mcp import MOST_AT_ONCE, MOST_KEPT, ResultPages, RunTools
from leakscope.model.errors import LeakscopeError
from leakscope.model.record import HeaderRecord, RunManifest, SourceRecord
from leakscope.recording import RecordingWriter, RunDirectory

pytest.importorskip("mcp.server", reason="the extra `mcp` isn't installed")

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "zoo" / "recordings"
LINE = SOURCE.splitlines().index("    history.append(bytearray(4 << 20))") + 1
Call = tuple[str, dict[str, Any]]


def ask(directory: Path, *calls: Call) -> list[Any]:
    """Start the server as a client does, make the calls in one session, and return the answers."""
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "leakscope", "mcp", str(directory)],
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )

    async def session() -> list[Any]:
        async with Client(server, read_timeout_seconds=120) as client:
            return [await client.call_tool(tool, arguments) for tool, arguments in calls]

    return asyncio.run(session())


def text(answer: Any) -> str:
    (content,) = answer.content
    return content.text


def items(answer: Any) -> list[Any]:
    assert not answer.is_error, text(answer)
    return answer.structured_content["items"]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    record_run(folder / "leaking")
    record_run(folder / "deeper" / "clean", grows=0)
    return folder


def test_tools_say_what_they_do_and_that_they_only_read(shelf: Path) -> None:
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "leakscope", "mcp", str(shelf)],
        env={"PYTHONPATH": str(ROOT)},
    )

    async def tools() -> list[Any]:
        async with Client(server) as client:
            assert "explain" in (client.instructions or "")
            return list((await client.list_tools()).tools)

    offered = {tool.name: tool for tool in asyncio.run(tools())}
    assert list(offered) == [tool.__name__ for tool in RunTools(shelf).offered()]
    for tool in offered.values():
        assert len(tool.description) > 40
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.open_world_hint is False


def test_an_agent_finds_the_leak_its_line_and_what_to_do(shelf: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in shelf.rglob("*")}
    listed, explained, why, censuses, rows, source, compared, following = ask(
        shelf,
        ("list_runs", {"order": "name"}),
        ("explain", {"run": "leaking", "budget": 400}),
        ("why", {"run": "leaking", "name": "history"}),
        ("list_censuses", {"run": "leaking"}),
        ("census_rows", {"run": "leaking", "name": "HISTORY"}),
        ("source_lines", {"run": "leaking", "place": f"train.py:{LINE}", "around": 1}),
        ("compare", {"before": "leaking", "after": "deeper/clean"}),
        ("what_next", {"run": "leaking"}),
    )
    assert [run["name"] for run in items(listed)] == ["deeper/clean", "leaking"]
    assert text(explained).startswith("✗ Leak · ")
    assert f"Fed at train.py:{LINE}." in text(explained)
    assert explained.structured_content is None, "an agent would read the text twice"
    assert any(line.startswith("  growth: growing") for line in items(why))
    assert len(items(censuses)) == 24
    (row,) = items(rows)
    assert (row["name"], row["host_bytes"]) == ("history", MIB + 4 * MIB * 11)
    assert rows.structured_content["census"]["census"] == 23
    assert items(source)[1] == f"{LINE}     history.append(bytearray(4 << 20))"
    assert any("history" in line and "Fixed" in line for line in items(compared))
    commands = [step["command"] for step in following.structured_content["steps"]]
    assert commands[0].split()[:2] in (["leakscope", "compare"], ["leakscope", "verify"])
    assert before == {path: path.stat().st_mtime_ns for path in shelf.rglob("*")}


@pytest.mark.slow
@pytest.mark.sample
def test_a_real_recording_is_explained_page_by_page(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "meter"
    folder.mkdir(parents=True)
    with tarfile.open(RECORDINGS / "average_meter.short.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    listed, explained, first, files = ask(
        tmp_path / "runs",
        ("list_runs", {}),
        ("explain", {"run": "meter"}),
        ("census_rows", {"run": "meter", "limit": 1}),
        ("source_lines", {"run": "meter"}),
    )
    assert items(listed)[0]["standing"] == "unreported"
    assert text(explained).startswith("✗ Leak · ")
    assert first.structured_content["total"] > 1
    assert "next_cursor" in first.structured_content
    assert items(files)


def test_long_results_are_reported_in_pages_by_their_handle(shelf: Path) -> None:
    tools = RunTools(shelf)
    page = tools.list_censuses("leaking", limit=10)
    found = [census["census"] for census in page["items"]]
    while "next_cursor" in page:
        page = tools.more(page["handle"], page["next_cursor"], limit=9)
        found += [census["census"] for census in page["items"]]
    assert found == list(range(24))
    assert "handle" not in tools.list_censuses("leaking", limit=24)


def test_pages_have_a_most_of_items_and_a_most_of_results_is_kept() -> None:
    pages = ResultPages()
    first = pages.first(range(10_000), 10_000)
    assert len(first["items"]) == MOST_AT_ONCE
    assert len(pages.page(first["handle"], 0, -3)["items"]) == 1
    assert pages.page(first["handle"], 10_000, 5)["items"] == range(0)
    for _ in range(MOST_KEPT):
        pages.first(range(9), 1)
    with pytest.raises(LeakscopeError, match="once more"):
        pages.page(first["handle"], 0, 5)
    handle = pages.first(range(9), 1)["handle"]
    for cursor in (-1, 10):
        with pytest.raises(LeakscopeError, match="outside of 0 to 9"):
            pages.page(handle, cursor, 5)


@pytest.mark.parametrize(
    "run",
    ["../secret", "leaking/../../secret", "/etc", "", ".", "..", "a\0b", "linked", "linked/leaking",
     "holds-a-link", "nothing", "deeper", "leaking/run.json"],
)  # fmt: skip
def test_no_name_leads_out_of_the_folder(run: str, shelf: Path) -> None:
    secret = record_run(shelf.parent / "secret")
    (shelf / "linked").symlink_to(secret)
    (shelf / "holds-a-link").mkdir()
    for file in secret.iterdir():
        (shelf / "holds-a-link" / file.name).symlink_to(file)
    tools = RunTools(shelf)
    for tool in (tools.explain, tools.list_censuses, tools.source_lines, tools.what_next):
        with pytest.raises(LeakscopeError, match=r"is refused|There is no run"):
            tool(run)
    with pytest.raises(LeakscopeError):
        tools.compare("leaking", run)
    with pytest.raises(LeakscopeError):
        tools.why(run, "x")


def test_a_run_behind_a_link_is_listed_as_refused(shelf: Path) -> None:
    secret = record_run(shelf.parent / "secret")
    (shelf / "linked").symlink_to(secret)
    (reported,) = [run for run in RunTools(shelf).list_runs()["items"] if run["name"] == "linked"]
    assert reported["standing"] == "refused"
    assert reported.keys() == {"name", "standing", "remark"}


def test_a_folder_that_is_reached_by_a_link_itself_is_served(shelf: Path) -> None:
    (shelf.parent / "here").symlink_to(shelf)
    assert RunTools(shelf.parent / "here").explain("leaking").startswith("✗ Leak")


@pytest.mark.parametrize(
    "place",
    ["/etc/passwd", "../train.py", "/project/train.py", "secret.py", "/elsewhere/secret.py",
     "../elsewhere/secret.py:1", "train.py:", ":3"],
)  # fmt: skip
def test_source_is_reported_of_the_programs_own_recorded_files_alone(
    place: str, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "run"
    RunDirectory.create(run, RunManifest(run_id="one", project_root="/project"))
    writer = RecordingWriter(run, HeaderRecord(pid=1))
    for path in ("/project/train.py", "/elsewhere/secret.py", "/project/../elsewhere/secret.py"):
        writer.write(SourceRecord(path=path, text=f"# {path}\n"))
    writer.close()
    tools = RunTools(run.parent)
    assert tools.source_lines("run")["items"] == ["train.py"]
    assert tools.source_lines("run", "train.py:1")["items"] == ["1 # /project/train.py"]
    assert tools.source_lines("run", "train.py:99")["items"] == []
    with pytest.raises(LeakscopeError, match="is no file that was recorded"):
        tools.source_lines("run", place)


def test_source_is_that_of_the_recording_not_of_the_disk(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("changed = True\n")
    run = tmp_path / "runs" / "run"
    RunDirectory.create(run, RunManifest(run_id="one", project_root=str(project)))
    writer = RecordingWriter(run, HeaderRecord(pid=1))
    writer.write(SourceRecord(path=str(project / "train.py"), text="as_recorded = True\n"))
    writer.close()
    lines = RunTools(run.parent).source_lines("run", "train.py")
    assert lines["items"] == ["1 as_recorded = True"]


def test_a_run_that_went_on_is_read_again(shelf: Path) -> None:
    tools = RunTools(shelf)
    assert tools.list_censuses("leaking")["total"] == 24
    for file in (shelf / "leaking").iterdir():
        file.unlink()
    record_run(shelf / "leaking", epochs=5)
    assert tools.list_censuses("leaking")["total"] == 10


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("explain", {"run": "nothing"}), "There is no run 'nothing'"),
        (("explain", {"run": "../leaking"}), "is refused"),
        (("why", {"run": "leaking", "name": " "}), "name is empty"),
        (("census_rows", {"run": "leaking", "census": 24}), "There is no census 24"),
        (("list_runs", {"order": "beauty"}), "'beauty' is no order"),
        (("more", {"handle": "r7", "cursor": 0}), "is no handle any more"),
    ],
)
def test_bad_questions_get_a_sentence(call: Call, says: str, shelf: Path) -> None:
    tool, arguments = call
    with pytest.raises(LeakscopeError, match=says):
        getattr(RunTools(shelf), tool)(**arguments)


def test_a_client_sees_the_sentence_and_can_go_on(shelf: Path) -> None:
    damaged = shelf / "damaged"
    damaged.mkdir()
    (damaged / "run.json").write_text("{}")
    wrong, unknown, missing, right = ask(
        shelf,
        ("explain", {"run": "../x"}),
        ("explain", {"run": "damaged"}),
        ("explain", {}),
        ("explain", {"run": "leaking", "budget": 1}),
    )
    for answer in (wrong, unknown, missing):
        assert answer.is_error
        assert "Traceback" not in text(answer)
    assert "is refused" in text(wrong)
    assert text(right).startswith("✗ Leak")


def leakscope(*words: object, code: str = "pass") -> subprocess.CompletedProcess[str]:
    start = f"{code}; import sys; sys.argv = ['leakscope', *sys.argv[1:]]; "
    start += "from leakscope.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_without_the_sdk_one_sentence_says_how_to_install_it(shelf: Path) -> None:
    done = leakscope("mcp", shelf, code="import sys; sys.modules['mcp'] = None")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'mcp>=2'" in done.stderr


def test_it_ends_when_the_client_goes(shelf: Path) -> None:
    done = leakscope("mcp", shelf)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("folder", ["nothing", "runs/leaking", "notes.txt"])
def test_what_is_no_folder_of_runs_is_refused(folder: str, shelf: Path) -> None:
    (shelf.parent / "notes.txt").write_text("hello")
    done = leakscope("mcp", shelf.parent / folder)
    assert done.returncode == 1
    assert done.stderr.startswith("leakscope: ")
    assert "Traceback" not in done.stderr


def test_the_usual_folder_may_not_be_there_yet(tmp_path: Path) -> None:
    assert RunTools(tmp_path / "leakscope-runs").list_runs() == {"items": [], "total": 0}


def test_answers_are_json(shelf: Path) -> None:
    tools = RunTools(shelf)
    for run in (tools.list_runs(), tools.census_rows("leaking"), tools.what_next("leaking")):
        json.dumps(run)
