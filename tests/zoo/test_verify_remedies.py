"""What each offered diff frees: what is kept of it, and what of that is published."""

from __future__ import annotations

from pathlib import Path

from verify_remedies import (
    Offer,
    Verified,
    is_settled,
    no_longer_offered,
    read_verified,
    table,
)

ROOT = Path(__file__).parents[2]


def offer(program: str, number: int) -> Offer:
    archive = Path(f"{program}.short.tar.xz")
    return Offer(archive, Path(f"{program}.py"), number, "kept", "Bound …", "0" * 16)


def verified(outcome: str, kind: str = "Bound …") -> Verified:
    return Verified(kind, "kept", "0" * 16, outcome, "")


def test_a_diff_that_a_report_offers_no_more_is_forgotten_and_others_are_kept() -> None:
    files = [Path("caches.short.tar.xz"), Path("hooks.short.tar.xz")]
    known = ["caches 1", "caches 2", "hooks 1", "elsewhere 1"]
    offered = [offer("caches", 1)]
    assert no_longer_offered(known, files, offered) == ["caches 2", "hooks 1"]


def test_a_kind_that_frees_or_reduces_in_less_than_nine_of_ten_is_named() -> None:
    enough = [verified("fixed")] * 8 + [verified("reduced, not fixed"), verified("not verified")]
    assert table(enough)[1] == []
    assert table([*enough[1:], verified("not fixed")])[1] == ["Bound …"]


def test_what_a_second_run_left_unproven_counts_in_neither_way_and_is_tried_again() -> None:
    unproven = verified("unproven")
    assert table([verified("fixed"), *[unproven] * 9])[1] == []
    assert table([verified("not fixed"), *[unproven] * 9])[1] == ["Bound …"]
    assert not is_settled(unproven, offer("caches", 1))
    assert is_settled(verified("not fixed"), offer("caches", 1))


def test_the_page_has_the_share_that_frees_and_no_kind_frees_too_seldom() -> None:
    text, poor = table(read_verified().values())
    assert not poor
    assert text in (ROOT / "docs" / "verify.md").read_text()
