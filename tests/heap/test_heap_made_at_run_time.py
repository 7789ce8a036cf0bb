"""Classes, modules and namespaces that a program makes as it runs, and who keeps them."""

from __future__ import annotations

import gc
import sys
import types

import pytest

from leakscope.heap.census import CensusTaker
from leakscope.heap.graph import can_seal
from leakscope.model.census import CensusRow, CensusScope

pytestmark = pytest.mark.skipif(not can_seal(), reason="only the native walker has a baseline")
MIB = 1 << 20
PROGRAM = """
import types

kept = []

def make_class(number):
    return type(f"Batch{number}", (), {"table": bytearray(1 << 20)})

def make_function(number):
    names = {"__name__": f"stage_{number}", "table": bytearray(1 << 20)}
    exec("def run():\\n    return table", names)
    return names["run"]

def make_module(number):
    module = types.ModuleType(f"plugin_{number}")
    module.table = bytearray(1 << 20)
    return module
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A module of the user's, whose names are walked."""
    file = tmp_path / "user_program.py"
    file.write_text(PROGRAM)
    module = types.ModuleType("user_program")
    module.__file__ = str(file)
    exec(compile(PROGRAM, str(file), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "user_program", module)
    yield module
    vars(module).clear()


@pytest.fixture
def taker(tmp_path):
    taker = CensusTaker(project_root=str(tmp_path))
    taker.take(CensusScope.FOCUSED)
    return taker


def row_of_kept(taker: CensusTaker, scope: CensusScope = CensusScope.FOCUSED) -> CensusRow | None:
    rows = taker.take(scope).rows
    return next((row for row in rows if row.path == "user_program·kept"), None)


@pytest.mark.parametrize(
    ("make", "suffix"),
    [
        ("make_class", "[*].table"),
        ("make_function", "[*].__globals__['table']"),
        ("make_module", "[*].table"),
    ],
)
@pytest.mark.parametrize("scope", list(CensusScope))
def test_who_refers_to_them_keeps_what_they_have(program, taker, make, suffix, scope):
    program.kept += [getattr(program, make)(number) for number in range(3)]
    census = taker.take(scope)
    rows = {row.path: row for row in census.rows}
    assert rows["user_program·kept"].host_bytes == pytest.approx(3 * MIB, rel=0.05)
    table = rows[f"user_program·kept{suffix}"]
    assert (table.count, table.user) == (3, True)
    assert table.name == f"user_program.kept{suffix}"


def test_an_instance_keeps_its_class(program, taker):
    program.kept += [program.make_class(number)() for number in range(3)]
    row = row_of_kept(taker)
    assert row is not None
    assert row.host_bytes == pytest.approx(3 * MIB, rel=0.05)


@pytest.mark.parametrize("scope", list(CensusScope))
def test_what_can_be_imported_is_nobodys(program, taker, monkeypatch, scope):
    """A class in a module, and a module among those imported, don't go when the user lets go."""
    library = types.ModuleType("somebodys_library")
    library.__file__ = f"{sys.prefix}/lib/somebodys_library.py"
    library.Table = type("Table", (), {"rows": bytearray(MIB), "__module__": library.__name__})
    monkeypatch.setitem(sys.modules, library.__name__, library)
    program.kept += [library, library.Table, library.Table()]
    row = row_of_kept(taker, scope)
    assert row is None or row.host_bytes < MIB / 4


def test_what_was_there_when_measuring_began_is_nobodys(program, tmp_path):
    program.kept += [program.make_class(number) for number in range(3)]
    gc.collect()  # what is young counts as new
    taker = CensusTaker(project_root=str(tmp_path))
    taker.take(CensusScope.FOCUSED)
    row = row_of_kept(taker)
    assert row is None or row.host_bytes < MIB / 4


def imported(number: int) -> types.ModuleType:
    module = types.ModuleType(f"plugin_{number}")
    module.__file__ = f"{sys.prefix}/lib/plugin.py"
    module.table = [bytearray(MIB)]
    return module


def test_modules_of_one_name_but_for_numbers_are_one_row(taker, monkeypatch):
    for number in range(4):
        monkeypatch.setitem(sys.modules, f"plugin_{number}", imported(number))
    rows = {row.path: row for row in taker.take(CensusScope.FULL).rows}
    assert rows["plugin_*·table"].host_bytes == pytest.approx(4 * MIB, rel=0.05)
    assert rows["plugin_*·table"].name == "plugin_*.table"


def test_modules_that_were_imported_before_keep_their_names(monkeypatch, tmp_path):
    for number in range(4):
        monkeypatch.setitem(sys.modules, f"plugin_{number}", imported(number))
    taker = CensusTaker(project_root=str(tmp_path))
    taker.take(CensusScope.FOCUSED)
    paths = {row.path for row in taker.take(CensusScope.FULL).rows}
    assert {f"plugin_{number}·table" for number in range(4)} <= paths


def test_what_a_module_brings_is_weighed_once(taker, monkeypatch):
    """It is young when it is imported, and so are the objects by which torch knows its storages."""
    torch = pytest.importorskip("torch")
    for _ in range(2):
        before = taker.take(CensusScope.FOCUSED).elsewhere_bytes
    module = imported(0)
    module.weights = torch.zeros(MIB // 4)
    monkeypatch.setitem(sys.modules, "plugin_0", module)
    for _ in range(3):
        census = taker.take(CensusScope.FOCUSED)
        assert census.elsewhere_bytes - before == pytest.approx(2 * MIB, rel=0.1)
    vars(module).clear()
