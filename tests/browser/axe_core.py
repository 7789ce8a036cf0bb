"""axe-core, which finds what keeps people with disabilities out of a page, without node.

    python tests/browser/axe_core.py

fetches it from the npm registry into the virtual environment, where the tests look for it. The
registry and its certificates are npm's own settings; proxies are those of the environment.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import ssl
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
PUBLIC = "https://registry.npmjs.org"
MEMBER = "package/axe.min.js"
FOLDER = Path(sys.prefix) / "share" / "axe-core"
PATIENCE_S = 30


class NotToBeHadError(Exception):
    """axe-core can't be fetched; says why."""


def axe_script(folder: Path = FOLDER, sha512: str = SHA512) -> Path:
    """Return the path of the script, fetched where it isn't there yet.

    Raises:
        NotToBeHadError: the registry can't be reached, sends something else, or there is no room.

    """
    script = folder / f"axe-{VERSION}.min.js"
    try:
        if not script.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _write_whole(script, _unpacked(_fetched(), sha512))
    except (OSError, tarfile.TarError, KeyError) as fault:
        raise NotToBeHadError(f"axe-core {VERSION} can't be fetched: {fault}") from fault
    return script


def setting(name: str) -> str:
    """Return a setting of npm's, from the environment or an ``.npmrc``; empty where it has none."""
    for variable in (f"NPM_CONFIG_{name.upper()}", f"npm_config_{name}"):
        if os.environ.get(variable):
            return os.environ[variable]
    for file in (Path.home() / ".npmrc", Path("/etc/npmrc")):
        lines = file.read_text().splitlines() if file.is_file() else []
        for line in lines:
            key, _, value = line.partition("=")
            if key.strip() == name:
                return os.path.expandvars(value.strip().strip("\"'"))
    return ""


def _fetched() -> bytes:
    registry = (setting("registry") or PUBLIC).rstrip("/")
    url = f"{registry}/axe-core/-/axe-core-{VERSION}.tgz"
    trusted = ssl.create_default_context()
    for authorities in (setting("cafile"), os.environ.get("NODE_EXTRA_CA_CERTS", "")):
        if authorities:
            trusted.load_verify_locations(authorities)
    with urllib.request.urlopen(url, timeout=PATIENCE_S, context=trusted) as answer:
        return bytes(answer.read())


def _unpacked(archive: bytes, sha512: str) -> bytes:
    found = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != sha512:
        raise NotToBeHadError(f"the registry sent another axe-core {VERSION}: sha512 {found}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:
        member = package.extractfile(MEMBER)
        assert member is not None
        return member.read()


def _write_whole(target: Path, content: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(target)


if __name__ == "__main__":
    try:
        print(axe_script())
    except NotToBeHadError as fault:
        sys.exit(f"{fault}; the tests that need it will be skipped.")
