from __future__ import annotations

import mmap
import platform
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from leakscope.probes.environment import environment


def test_versions_platform_and_processors_are_reported():
    facts = environment()
    assert facts["python"] == platform.python_version()
    assert facts["torch"].startswith(metadata.version("torch").split("+")[0])
    assert int(facts["processors"]) >= 1
    assert facts["gc_enabled"] == "true"
    assert all(type(value) is str and value for value in facts.values())


def test_the_ground_is_reported(tmp_path, monkeypatch):
    chosen = tmp_path / "enabled"
    chosen.write_text("always [madvise] never\n")
    monkeypatch.setattr("leakscope.probes.environment._HUGE_PAGES", chosen)
    monkeypatch.setattr("sysconfig.get_config_var", {"Py_GIL_DISABLED": 1}.get)
    monkeypatch.setattr("os.confstr", {"CS_GNU_LIBC_VERSION": "glibc 2.36"}.get)
    facts = environment()
    reported = {name: facts[name] for name in ("glibc", "huge_pages", "free_threaded")}
    assert reported == {"glibc": "2.36", "huge_pages": "madvise", "free_threaded": "true"}


def test_what_the_ground_does_not_tell_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("leakscope.probes.environment._HUGE_PAGES", tmp_path / "none")
    monkeypatch.setattr("sysconfig.get_config_var", {"Py_GIL_DISABLED": 0}.get)
    monkeypatch.setattr("os.confstr", lambda name: None)
    assert not {"glibc", "huge_pages", "free_threaded"} & set(environment())


def test_versions_of_more_libraries_are_reported_and_change_nothing_else():
    facts = environment(["pytest", "python", "not-there", "PYTHONMALLOC"])
    assert facts["pytest"] == metadata.version("pytest")
    assert facts["python"] == platform.python_version()
    assert "not-there" not in facts


def test_versions_are_those_that_the_metadata_of_all_that_is_installed_tells():
    names = {distribution.metadata["Name"] for distribution in metadata.distributions()}
    loaded = set(sys.modules)
    names = sorted(name for name in names if name.replace("-", "_").lower() not in loaded)
    reported = environment(names)
    assert {name: reported.get(name) for name in names} == {n: metadata.version(n) for n in names}


def test_metadata_without_a_version_or_of_an_older_kind_is_read_too(tmp_path, monkeypatch):
    (tmp_path / "Old.Name-1.5-py3.11.egg-info").write_text("Metadata-Version: 1.1\nVersion: 1.5\n")
    (tmp_path / "editable.egg-info").mkdir()
    (tmp_path / "editable.egg-info" / "PKG-INFO").write_text("Name: editable\nVersion: 2.0rc1\n")
    (tmp_path / "broken-3.dist-info").mkdir()
    (tmp_path / "none-4.dist-info").mkdir()
    (tmp_path / "none-4.dist-info" / "METADATA").write_text("Name: none\n\nVersion: in the text\n")
    monkeypatch.syspath_prepend(tmp_path)
    reported = environment(["old-name", "editable", "broken", "none"])
    assert (reported["old-name"], reported["editable"]) == ("1.5", "2.0rc1")
    assert "broken" not in reported
    assert "none" not in reported


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_mimalloc_that_is_loaded_is_reported_with_its_version(tmp_path):
    assert "mimalloc" not in environment()
    library = tmp_path / "libmimalloc-secure.so.2.1"
    library.write_bytes(b"not really")
    with library.open() as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ):
        facts = environment()
    assert (facts["allocator"], facts["mimalloc"]) == ("mimalloc", "2.1")


def test_allocator_settings_are_reported_and_other_variables_are_not(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    facts = environment()
    assert facts["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert "hunter2" not in str(facts)


def test_a_platform_that_tells_nothing_leaves_gaps(monkeypatch):
    module = sys.modules["leakscope.probes.environment"]
    for source in ("_platform", "_processors", "_allocator", "_version"):
        monkeypatch.setattr(module, source, _refuses)
    facts = environment()
    assert facts["python"]
    assert "processors" not in facts


def test_asking_imports_no_library():
    code = (
        "import sys; from leakscope.probes.environment import environment; facts = environment();"
        "print('torch' in facts, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def _refuses(*_):
    raise OSError("not on this platform")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_commit_is_that_which_git_has_checked_out(tmp_path):
    def git(*words):
        named = ["-c", "user.name=a", "-c", "user.email=b", "-C", str(project), *words]
        done = subprocess.run(["git", *named], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    if shutil.which("git") is None:
        pytest.skip("there is no git")
    project = tmp_path / "project"
    (project / "below").mkdir(parents=True)
    git("init", "-q", "-b", "main")
    assert "commit" not in environment(project=str(project))
    git("commit", "-q", "--allow-empty", "-m", "first")
    commit = git("rev-parse", "HEAD")[:12]
    assert environment(project=str(project / "below"))["commit"] == commit
    git("pack-refs", "--all")
    assert environment(project=str(project))["commit"] == commit
    git("checkout", "-q", "--detach")
    assert environment(project=str(project))["commit"] == commit
    git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    assert environment(project=str(tmp_path / "other"))["commit"] == commit
    assert "commit" not in environment()


@pytest.mark.parametrize(
    "head", ["", "ref: refs/heads/gone", "ref: refs/heads/odd", "x" * 40, "\0", COMMIT[:39]]
)
def test_a_repository_that_is_not_understood_tells_no_commit(head, tmp_path):
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text(head)
    (git / "refs" / "heads" / "odd").write_bytes(b"\xff\xfe")
    assert "commit" not in environment(project=str(tmp_path))
    (git / "HEAD").write_text(COMMIT)
    assert environment(project=str(tmp_path))["commit"] == COMMIT[:12]
