"""axe-core is fetched from the registry that npm uses, and only if it is the one we know."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import axe_core
import pytest
from axe_core import NotToBeHadError, axe_script

CONTENT = b"globalThis.axe = {};"


def package(content: bytes = CONTENT) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo(axe_core.MEMBER)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def digest(archive: bytes) -> str:
    return base64.b64encode(hashlib.sha512(archive).digest()).decode()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """A registry on this machine with one package in it."""
    archive = package()
    place = tmp_path / "served" / "axe-core" / "-"
    place.mkdir(parents=True)
    (place / f"axe-core-{axe_core.VERSION}.tgz").write_bytes(archive)

    class Served(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path / "served"))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", archive
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("registry", "cafile"):
        monkeypatch.delenv(f"NPM_CONFIG_{name.upper()}", raising=False)
        monkeypatch.delenv(f"npm_config_{name}", raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("reported_by", ["environment", "file"])
def test_the_registry_of_npm_is_queried(
    reported_by: str, registry: tuple[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, archive = registry
    if reported_by == "environment":
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", url)
    else:
        (tmp_path / ".npmrc").write_text(f"fund=false\nregistry={url}\n")
    script = axe_script(tmp_path / "kept", digest(archive))
    assert script.read_bytes() == CONTENT
    assert [path.name for path in script.parent.iterdir()] == [script.name]


def test_what_was_fetched_once_is_not_fetched_again(
    registry: tuple[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, archive = registry
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", url)
    first = axe_script(tmp_path / "kept", digest(archive))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/")
    assert axe_script(tmp_path / "kept", digest(archive)) == first


def test_another_package_under_its_name_is_refused(
    registry: tuple[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry[0])
    with pytest.raises(NotToBeHadError, match="another axe-core"):
        axe_script(tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())


def test_a_registry_out_of_reach_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/")
    with pytest.raises(NotToBeHadError, match="can't be fetched"):
        axe_script(tmp_path / "kept")
