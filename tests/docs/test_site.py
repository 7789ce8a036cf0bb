"""The documentation as pages: it builds without a warning, and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PARTS = {DOCS / "known-culprits-head.md"}
"""Texts that are put into pages."""
SITE = sorted(set(DOCS.rglob("*.md")) - PARTS)
PAGES = sorted([*SITE, *ROOT.glob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    """Return where a page's links lead, those out of the project left out."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    return [link for link in LINK.findall(prose) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_that_is_named_exists(page: Path) -> None:
    for name in re.findall(r"`(docs/[\w/.-]+\.\w+)`", page.read_text()):
        assert (ROOT / name).exists(), name


MODULE = re.compile(r"`((?:leakscope/)?[a-z_]+/[\w/]*\w\.py)`")
ROOMS = {room.name for room in (ROOT / "leakscope").iterdir() if room.is_dir()} | {"leakscope"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_program_of_the_tests_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`(tests/[\w./]+\.py)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_is_named_exists(page: Path) -> None:
    for name in MODULE.findall(page.read_text()):
        if name.partition("/")[0] in ROOMS:
            assert (ROOT / "leakscope" / name.removeprefix("leakscope/")).exists(), name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="the extra `docs` isn't installed")
    built = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        str(built / ".trees"),
    ]
    done = subprocess.run(
        [*command, str(DOCS), str(built)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site: Path) -> None:
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert {str(p.relative_to(DOCS).with_suffix(".html")) for p in SITE} <= built


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["'](?:https?:)?//""")
    assert not [page for page in site.rglob("*.html") if loaded.search(page.read_text())]
    assert not [style for style in site.rglob("*.css") if "url(http" in style.read_text()]


@pytest.mark.slow
def test_the_reference_has_what_is_public(site: Path) -> None:
    from click import Context

    import leakscope
    from leakscope import cleanup, notebook
    from leakscope.cli import leakscope as command

    page = (site / "api.html").read_text()
    public = [f"leakscope.{name}" for name in ("profile", "Scope", "heap.snapshot")]
    public += ["leakscope.find_growth", "leakscope.Growth"]
    public += [f"leakscope.cleanup.{name}" for name in cleanup.__all__]
    public += [f"leakscope.notebook.{name}" for name in notebook.__all__]
    assert not [name for name in public if f'id="{name}"' not in page]
    assert "Type<span" not in page, "sentences with a colon are taken apart"
    assert "log_every" in page.partition('id="leakscope.transformers.LeakScopeCallback"')[2][:4000]
    assert 'id="leakscope.Growth.bytes_per_call"' in page
    rooms = {"cleanup", "heap", "notebook"}
    own = {"Growth", "Scope", "__version__", "find_growth", "profile"}
    assert set(leakscope.__all__) == own | rooms
    commands = (site / "commands.html").read_text()
    names = command.list_commands(Context(command))
    assert not [name for name in names if f">leakscope {name}" not in commands]
