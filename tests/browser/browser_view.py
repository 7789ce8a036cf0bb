"""A window of the browser with one of our pages in it: what it says, asks for and looks like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
SIZES = {"desktop": DESKTOP, "phone": PHONE}
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")

WIDER_THAN_THE_WINDOW = """() => {
  const closed = [...document.querySelectorAll('details:not([open])')];
  for (const details of closed) details.open = true;
  const room = document.documentElement.clientWidth, width = document.documentElement.scrollWidth;
  const scrolls = (one) => one
    && (getComputedStyle(one).overflowX !== 'visible' || scrolls(one.parentElement));
  const sticks_out = (one) => {
    const box = one.getBoundingClientRect();
    return Math.max(box.right, box.left + one.scrollWidth) > room + 0.5;
  };
  const culprits = width <= room ? [] : [...document.body.querySelectorAll('*')]
    .filter((one) => sticks_out(one) && !scrolls(one) && ![...one.children].some(sticks_out))
    .map((one) => one.outerHTML.slice(0, 160)).concat(`${width} px in a window of ${room}`);
  for (const details of closed) details.open = false;
  return culprits;
}"""
CROWDED = """() => [...document.querySelectorAll('svg:has(.epoch-name)')].flatMap((svg) => {
  const names = [...svg.querySelectorAll('.epoch-name')];
  const boxes = names.map((name) => name.getBoundingClientRect());
  return names.slice(1).filter((_, place) => boxes[place].right > boxes[place + 1].left)
    .map((name) => `${name.textContent} covers the name before it`);
})"""
VIOLATIONS = """(rules) => axe.run(document, {
  resultTypes: ['violations'], preload: false,
  ...(rules.length ? {runOnly: {type: 'rule', values: rules}} : {}),
}).then((found) => found.violations.flatMap((rule) => rule.nodes.map(
  (node) => `${rule.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))"""


def plain(text: str | None) -> str:
    """Return a text of a page as it is read, with spaces of one kind."""
    return (text or "").replace("\N{NO-BREAK SPACE}", " ")


@dataclass
class View:
    """A window and what came of it since it was opened."""

    page: Page = field(repr=False)
    messages: list[str] = field(default_factory=list)
    """Messages on the console and errors that nobody caught."""
    requested: list[str] = field(default_factory=list)
    """Addresses of everything that was loaded."""

    def open(self, file: Path, fragment: str = "") -> None:
        """Show a file, and wait until its script has run."""
        self.page.goto(file.absolute().as_uri() + fragment)

    def wear(self, size: dict[str, int], theme: Theme) -> None:
        """Change the size of the window and the colours that the system asks for."""
        self.page.set_viewport_size(size)  # type: ignore[arg-type]
        self.page.emulate_media(color_scheme=theme)

    def too_wide(self) -> str:
        """Return what makes the page wider than its window with all of its details open.

        A line each; empty where the page fits.
        """
        return "\n".join(self.page.evaluate(WIDER_THAN_THE_WINDOW))

    def crowded(self) -> str:
        """Return which epochs' names cover each other in a timeline, a line each."""
        return "\n".join(self.page.evaluate(CROWDED))

    def violations(self, axe: str, *rules: str) -> str:
        """Return what axe-core finds, by all of its rules or by some, a line each."""
        if not self.page.evaluate("'axe' in globalThis"):
            self.page.evaluate(axe)
        return "\n".join(self.page.evaluate(VIOLATIONS, rules))

    def data(self) -> Any:
        """Return what the page has put into itself for its script."""
        return self.page.evaluate("JSON.parse(document.getElementById('data').textContent)")

    def assert_quiet(self) -> None:
        """Fail if the page logged anything, or loaded anything besides itself."""
        assert self.messages == []
        assert [url for url in self.requested if not url.startswith("data:")] == [
            self.page.url.partition("#")[0].partition("?")[0]
        ]


@dataclass(frozen=True)
class Pictures:
    """A folder for pictures of pages."""

    folder: Path
    wants_all: bool
    """Otherwise only of those that fail."""

    def keep(self, view: View, name: str, fault: str) -> None:
        """Keep what a page looks like, under a name, if it is wanted."""
        if fault or self.wants_all:
            path = self.folder / f"{name.replace('/', '-')}.jpeg"
            view.page.screenshot(path=path, full_page=True, type="jpeg", quality=80)


@contextmanager
def opened(context: BrowserContext) -> Iterator[View]:
    """Open a window and close it again."""
    page = context.new_page()
    page.set_default_timeout(20_000)
    view = View(page)
    page.on("console", lambda message: view.messages.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda fault: view.messages.append(str(fault)))
    page.on("request", lambda request: view.requested.append(request.url))
    try:
        yield view
    finally:
        page.close()
