from __future__ import annotations

import gc
import json
import os
import sys
import types
from pathlib import Path

import pytest

import leakscope.heap.census
from leakscope.heap.anatomy import module_name
from leakscope.heap.ownership import Definitions, Ownership
from leakscope.heap.roots import actors_of_ray
from leakscope.model.census import CensusScope, package_paths


@pytest.fixture
def ownership(tmp_path: Path) -> Ownership:
    return Ownership(str(tmp_path))


def test_files_under_the_project_are_the_users(ownership: Ownership, tmp_path: Path) -> None:
    assert ownership.owns_file(str(tmp_path / "package" / "train.py"))


@pytest.mark.parametrize(
    "path", ["venv/lib/python3.11/site-packages/torch/nn.py", "lib/dist-packages/six.py"]
)
def test_what_is_installed_under_the_project_is_not(
    path: str, ownership: Ownership, tmp_path: Path
) -> None:
    assert not ownership.owns_file(str(tmp_path / path))


@pytest.fixture
def vendored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder into which ``pip install --target`` put a package, on the path."""
    folder = tmp_path / "vendored"
    (folder / "decoder").mkdir(parents=True)
    (folder / "decoder" / "__init__.py").write_text("")
    metadata = folder / "decoder-1.0.dist-info"
    metadata.mkdir()
    metadata.joinpath("RECORD").write_text(
        "decoder/__init__.py,sha256=x,0\ndecoder-1.0.dist-info/RECORD,,\n../../bin/decode,,\n"
    )
    (folder / "another-1.0.dist-info").mkdir()  # some installers leave no record
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


def test_what_pip_installed_into_another_folder_of_the_path_is_not(
    vendored: Path, tmp_path: Path
) -> None:
    ownership = Ownership(str(tmp_path))
    assert not ownership.owns_file(str(vendored / "decoder" / "__init__.py"))
    assert package_paths(str(tmp_path)) == [f"{vendored}{os.sep}"]
    assert ownership.owns_file(str(tmp_path / "train.py"))
    assert ownership.owns_file(str(tmp_path / "decoder" / "__init__.py"))


def test_a_program_beside_its_installed_packages_is_the_users(vendored: Path) -> None:
    """So functions in the cloud are packed."""
    ownership = Ownership(str(vendored))
    assert ownership.owns_file(str(vendored / "handler.py"))
    assert not ownership.owns_file(str(vendored / "decoder" / "__init__.py"))
    assert str(vendored / "decoder") in package_paths(str(vendored))
    assert f"{vendored}{os.sep}" not in package_paths(str(vendored))


def test_the_standard_library_and_leakscope_are_never_the_users() -> None:
    everything = Ownership("/")
    assert not everything.owns_file(str(json.__file__))
    assert not everything.owns_file(str(leakscope.heap.census.__file__))


def test_code_without_a_file_is_the_users_in_main_only(ownership: Ownership) -> None:
    code = compile("x = 1", "<string>", "exec")
    assert ownership.owns_code(code, {"__name__": "__main__"})
    assert not ownership.owns_code(code, {"__name__": "torch.fx"})


def test_leakscopes_own_main_is_not_the_users(ownership: Ownership) -> None:
    own = {"__name__": "__main__", "__file__": str(leakscope.heap.census.__file__)}
    assert not ownership.owns_module("__main__", own)
    assert ownership.owns_module("__main__", {"__name__": "__main__"})


def test_methods_are_named_without_help_of_the_interpreter(tmp_path: Path) -> None:
    """As on 3.10, where code does not know its qualified name."""
    ownership = Ownership(str(tmp_path))
    module = types.ModuleType("mine_without_help")
    module.__file__ = str(tmp_path / "mine.py")
    source = (
        "class Trainer:\n    def fit(self):\n        pass\n"
        "def outer():\n    def inner():\n        pass\n    return inner\n"
    )
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    sys.modules["mine_without_help"] = module
    try:
        definitions = Definitions(ownership)
        fit, inner = module.Trainer.fit.__code__, module.outer().__code__
        assert definitions._qualname_without_help(fit, module.Trainer()) == "Trainer.fit"
        assert definitions._qualname_without_help(inner, None) == "outer.<locals>.inner"
    finally:
        del sys.modules["mine_without_help"]


def test_modules_that_come_go_and_come_again_are_followed(tmp_path, monkeypatch):
    def imported(name):
        module = types.ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
        return vars(module)

    def known():
        return {name: names for name, names in ownership.user_modules() if name != "__main__"}

    ownership = Ownership(str(tmp_path))
    assert known() == {}
    first = imported("first_of_mine")
    assert list(known()) == ["first_of_mine"]
    second = imported("second_of_mine")
    assert known() == {"first_of_mine": first, "second_of_mine": second}
    monkeypatch.delitem(sys.modules, "first_of_mine")
    assert list(known()) == ["second_of_mine"]
    again = imported("first_of_mine")
    assert known()["first_of_mine"] is again
    replaced = imported("second_of_mine")
    assert known()["second_of_mine"] is replaced
    monkeypatch.delitem(sys.modules, "first_of_mine")
    imported("third_of_mine")
    assert sorted(known()) == ["second_of_mine", "third_of_mine"]


def test_leakscopes_own_modules_are_known_and_no_users():
    ownership = Ownership("/")
    own = ownership.own_modules()
    assert sys.modules["leakscope.heap.ownership"] in own
    assert all(module.__name__.partition(".")[0] == "leakscope" for module in own)
    assert not {id(vars(m)) for m in own} & {id(names) for _, names in ownership.user_modules()}


def test_a_class_of_an_extension_may_have_no_module(ownership: Ownership) -> None:
    nameless = type("iterator", (), {})
    (names,) = (found for found in gc.get_referents(nameless.__dict__) if type(found) is dict)
    del names["__module__"]  # as a type made from a spec whose name has no dot in it
    with pytest.raises(AttributeError):
        _ = nameless.__module__
    assert module_name(nameless) == ""
    assert not ownership.owns_class(nameless)
    kept = [nameless() for _ in range(3)]
    leakscope.heap.census.CensusTaker(project_root="/nowhere").take(CensusScope.FULL)
    assert len(kept) == 3


RAY_MAIN = "/lib/python3.11/site-packages/ray/_private/workers/default_worker.py"


def test_what_a_worker_of_ray_was_sent_is_the_users_and_its_main_is_not(
    ownership: Ownership, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = RAY_MAIN
    monkeypatch.setitem(sys.modules, "__main__", main)
    text = "class Actor:\n    def step(self):\n        return 1\n"
    names = {"__name__": "__main__"}
    exec(compile(text, str(tmp_path / "job.py"), "exec"), names)
    actor = names["Actor"]
    assert isinstance(actor, type)
    assert not ownership.owns_module("__main__", vars(main))
    assert ownership.owns_class(actor)
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    worker = types.ModuleType("ray._private.worker")
    made = actor()
    worker.global_worker = types.SimpleNamespace(actors={b"id": made})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray._private.worker", worker)
    assert actors_of_ray() == {"Actor": made}


def test_without_ray_there_are_no_actors() -> None:
    assert "ray" in sys.modules or actors_of_ray() == {}
