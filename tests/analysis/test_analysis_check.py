"""What of a run's growth is allowed: limits, baselines, suppressions, ignored patterns."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest

from leakscope.analysis.gate import Allowed, check, stale_baseline_entries, to_growth_limit
from leakscope.analysis.gate.baseline import new_baseline
from leakscope.model.documents import Baseline, Check, CheckReason, Known, Outcome, Suppression
from leakscope.model.errors import LeakscopeError
from leakscope.model.report import (
    Culprit,
    Finding,
    Overhead,
    PhaseMemory,
    Remedy,
    Report,
    RunFacts,
    RunVerdict,
    Severity,
    Work,
)

TODAY = date(2026, 6, 1)
MB = 10**6
REMEDY = Remedy(title="Clear it", text="Clear it.")


def culprit(**changes: object) -> Culprit:
    facts: dict[str, object] = {
        "rank": 1, "name": "Trainer.history", "path": "main()·trainer.history[*]['loss']",
        "kind": "list", "type": "list", "growth": "across", "unit": "epoch", "phase": "train",
        "bytes_per_unit": 4.0 * MB, "interval": (3.9 * MB, 4.1 * MB), "share": 0.9,
        "total_bytes": 40 * MB, "severity": Severity.WARNING, "readings": 9,
        "signature": "abc", "remedy": REMEDY, "fed_at": ["src/train.py:12"],
    }  # fmt: skip
    return Culprit(**{**facts, **changes})


def finding(**changes: object) -> Finding:
    facts: dict[str, object] = {
        "rank": 1, "kind": "allocator_slack", "title": "Freed memory stays", "text": "It stays.",
        "unit": "epoch", "bytes_per_unit": 2.0 * MB, "interval": (1.5 * MB, 2.5 * MB),
        "severity": Severity.WARNING, "signature": "def", "remedy": REMEDY,
    }  # fmt: skip
    return Finding(**{**facts, **changes})


def report(*suspects: Culprit | Finding, verdict: RunVerdict | None = None) -> Report:
    grave = any(s.severity is not Severity.NOTE for s in suspects)
    return Report(
        verdict=verdict or (RunVerdict.LEAK if grave else RunVerdict.CLEAN),
        headline="",
        growth=[],
        culprits=[s for s in suspects if isinstance(s, Culprit)],
        findings=[s for s in suspects if isinstance(s, Finding)],
        cleared=[],
        overhead=Overhead(wall_share=0.01, peak_bytes=0),
        errors=[],
        run=RunFacts(
            run_id="one",
            path="run",
            script="train.py",
            command=[],
            created=0.0,
            environment={},
            ended="completed",
        ),
        work=Work(
            duration_s=1800.0,
            steps=1000,
            epochs=10,
            validations=5,
            batches={"train": 1000, "val": 50},
        ),
        missing=["Longer."] if verdict is RunVerdict.INCONCLUSIVE else [],
    )


def checked(*suspects: Culprit | Finding, **allowed: object) -> Check:
    return check(report(*suspects), Allowed(today=TODAY, **allowed))


def standing(*suspects: Culprit | Finding, **allowed: object) -> CheckReason:
    return checked(*suspects, **allowed).growths[0].standing


def known(**changes: object) -> Baseline:
    facts: dict[str, object] = {
        "name": "Trainer.history", "signature": "abc", "growth": "across", "phase": "train",
        "bytes_per_unit": 4.0 * MB, "unit": "epoch",
    }  # fmt: skip
    return Baseline(culprits=[Known(**{**facts, **changes})])


def excuse(**changes: object) -> Suppression:
    return Suppression(**{"reason": "wanted", "pattern": "Trainer.history", **changes})


def test_what_is_grave_fails_and_notes_pass() -> None:
    assert not checked(culprit()).passes
    assert not checked(finding()).passes
    assert checked(culprit(severity=Severity.NOTE), finding(severity=Severity.NOTE)).passes
    assert checked().outcome is Outcome.PASSED


def test_a_run_that_ended_for_want_of_memory_fails() -> None:
    ended = finding(kind="out_of_memory", severity=Severity.CRITICAL, unit="", bytes_per_unit=0.0)
    generous = to_growth_limit("1 TB/epoch")
    assert not checked(ended, limit=generous).passes


def test_an_inconclusive_run_fails_unless_that_is_accepted() -> None:
    thin = report(verdict=RunVerdict.INCONCLUSIVE)
    lenient = check(thin, Allowed(today=TODAY, strict=False))
    strict = check(thin, Allowed(today=TODAY))
    assert (lenient.outcome, lenient.passes) == (Outcome.INCONCLUSIVE, True)
    assert (strict.outcome, strict.passes) == (Outcome.INCONCLUSIVE, False)
    assert strict.missing == ["Longer."]


@pytest.mark.parametrize(
    ("text", "rate", "unit"),
    [
        ("1 MB/epoch", MB, "epoch"),
        ("1MiB per epoch", 1 << 20, "epoch"),
        (" 0.5 kb / step ", 500, "step"),
        ("64 KiB per 100 steps", 655.36, "step"),
        ("0 B/validations", 0, "validation"),
        (".5 GB/hour", 5e8, "hour"),
        ("2 mib/minutes", 2 << 20, "minute"),
    ],
)
def test_limits_are_read_as_people_write_them(text: str, rate: float, unit: str) -> None:
    limit = to_growth_limit(text)
    assert (limit.bytes_per_unit, limit.unit) == (pytest.approx(rate), unit)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1 MB", "1 M/epoch", "-1 MB/epoch", "nan B/step", "1 MB/parsec", "1 MB/0 steps",
     "1 ib/step", "9" * 400 + " B/step", "1 MB/epoch/epoch", "MB/step", "1e5 B/step"],
)  # fmt: skip
def test_what_is_no_limit_is_one_sentence(text: str) -> None:
    with pytest.raises(LeakscopeError, match="1 MB/epoch") as caught:
        to_growth_limit(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("4 MB/epoch", CheckReason.ALLOWED),
        ("3.9 MB/epoch", CheckReason.FAILED),
        ("40 kB/step", CheckReason.ALLOWED),
        ("39 kB/step", CheckReason.FAILED),
        ("8 MB/validation", CheckReason.ALLOWED),
        ("7.9 MB/validation", CheckReason.FAILED),
        ("80 MB/hour", CheckReason.ALLOWED),
        ("79 MB/hour", CheckReason.FAILED),
    ],
)
def test_a_limit_is_compared_in_like_units(limit: str, expected: CheckReason) -> None:
    """4 MB in each of ten epochs, over a thousand steps, five validations and half an hour."""
    assert standing(culprit(), limit=to_growth_limit(limit)) is expected


def test_a_unit_that_the_run_does_not_count_allows_nothing() -> None:
    own_mark = culprit(unit="fold")
    growth = checked(own_mark, limit=to_growth_limit("1 TB/epoch")).growths[0]
    assert growth.standing is CheckReason.FAILED
    assert "can't tell how much that is per epoch" in growth.why


def test_a_limit_does_not_speak_of_what_a_phase_gives_back() -> None:
    within = culprit(growth="within", unit="batch", phase="val")
    assert standing(within, limit=to_growth_limit("1 TB/epoch")) is CheckReason.FAILED


def test_growth_in_each_of_several_workers_adds_up() -> None:
    limit = to_growth_limit("5 MB/epoch")
    assert standing(culprit(workers=1), limit=limit) is CheckReason.ALLOWED
    assert standing(culprit(workers=2), limit=limit) is CheckReason.FAILED


def several(*devices: str, **changes: object) -> list[Culprit]:
    names = enumerate(devices)
    return [culprit(name=f"n{n}", signature=f"s{n}", device=d, **changes) for n, d in names]


def test_what_is_within_the_limit_must_be_so_together() -> None:
    three, limit = several("host", "host", "host"), to_growth_limit("11 MB/epoch")
    done = checked(*three, limit=limit)
    assert not done.passes
    assert [growth.standing for growth in done.growths] == [CheckReason.FAILED] * 3
    printed = "3 culprits that are each within 11 MB/epoch grow by 11.4 MiB per epoch together"
    assert done.headline == f"Not allowed: {printed}."
    assert all(f"is within 11 MB/epoch. But {printed}." in growth.why for growth in done.growths)
    assert checked(*three, limit=to_growth_limit("12 MB/epoch")).passes
    per_step = [*several("host"), culprit(signature="s", unit="step", bytes_per_unit=0.04 * MB)]
    assert not checked(*per_step, limit=to_growth_limit("7 MB/epoch")).passes
    assert checked(*per_step, limit=to_growth_limit("8 MB/epoch")).passes


def test_one_that_is_faster_by_itself_fails_by_itself() -> None:
    fast = culprit(name="fast", signature="fast", bytes_per_unit=40.0 * MB)
    done = checked(*several("host", "host"), fast, limit=to_growth_limit("9 MB/epoch"))
    place = {growth.name: growth.standing for growth in done.growths}
    assert place == {
        "fast": CheckReason.FAILED,
        "n0": CheckReason.ALLOWED,
        "n1": CheckReason.ALLOWED,
    }


def test_what_lies_elsewhere_or_may_be_the_same_bytes_is_not_added_up() -> None:
    limit = to_growth_limit("5 MB/epoch")
    assert checked(*several("host", "cuda:0"), limit=limit).passes
    assert checked(culprit(), finding(), limit=limit).passes
    assert checked(culprit(), culprit(signature="n", severity=Severity.NOTE), limit=limit).passes
    on_device = several("host", "cuda:0", "cuda:0")
    done = checked(*on_device, limit=limit)
    assert [growth.device for growth in done.growths if growth.standing is CheckReason.FAILED] == [
        "cuda:0"
    ] * 2
    assert "2 culprits on cuda:0 that" in done.headline


def test_what_the_baseline_has_needs_no_part_of_the_limit() -> None:
    three, limit = several("host", "host", "host"), to_growth_limit("11 MB/epoch")
    failed = checked(*three, limit=limit)
    assert checked(*three, limit=limit, baseline=baseline_of(failed)).passes
    single = Baseline(culprits=baseline_of(failed).culprits[:1])
    done = checked(*three, limit=limit, baseline=single)
    assert done.passes
    place = [single.standing for single in done.growths]
    assert place == [CheckReason.KNOWN, CheckReason.ALLOWED, CheckReason.ALLOWED]
    strict = checked(*three, limit=to_growth_limit("7 MB/epoch"), baseline=single)
    assert strict.headline.startswith("Not allowed: 2 culprits that are each within 7 MB/epoch")


def test_a_note_that_is_surely_faster_than_the_limit_fails() -> None:
    note = culprit(severity=Severity.NOTE)
    assert standing(note, limit=to_growth_limit("3 MB/epoch")) is CheckReason.FAILED
    assert standing(note, limit=to_growth_limit("3.95 MB/epoch")) is CheckReason.NOTE
    assert standing(note, limit=to_growth_limit("5 MB/epoch")) is CheckReason.NOTE
    loose = finding(severity=Severity.NOTE)
    assert standing(loose, limit=to_growth_limit("1 B/epoch")) is CheckReason.NOTE


@pytest.mark.parametrize(
    "pattern",
    ["Trainer.history", "Trainer.*", "*history", "main()·trainer.history[*]['loss']", "main()*"],
)
def test_ignored_patterns_match_names_and_paths(pattern: str) -> None:
    done = checked(culprit(), ignored=[pattern])
    assert done.growths[0].standing is CheckReason.IGNORED
    assert done.remarks == []


def test_a_pattern_that_matches_nothing_is_reported() -> None:
    done = checked(culprit(), ignored=["Trainer.histroy"])
    assert done.growths[0].standing is CheckReason.FAILED
    assert ["Trainer.histroy" in remark for remark in done.remarks] == [True]


def test_findings_are_ignored_by_their_kind() -> None:
    assert standing(finding(), ignored=["allocator_*"]) is CheckReason.IGNORED


@pytest.mark.parametrize(
    ("kind", "suspect"),
    [
        ("growing-container", culprit()),
        ("growing-within-phase", culprit(growth="within", unit="batch")),
        ("kept-graph", culprit(graph_nodes=3)),
    ],
)
def test_culprits_are_excused_by_their_kind_as_findings_are(kind: str, suspect: Culprit) -> None:
    assert standing(suspect, ignored=[kind]) is CheckReason.IGNORED
    assert standing(suspect, suppressions=[excuse(pattern=kind)]) is CheckReason.SUPPRESSED
    others = {"growing-container", "growing-within-phase", "kept-graph"} - {kind}
    assert standing(suspect, ignored=sorted(others)) is CheckReason.FAILED


@pytest.mark.parametrize(
    "matching",
    [
        excuse(),
        excuse(pattern="", signature="abc"),
        excuse(pattern="", path="src/train.py"),
        excuse(pattern="", path="src/*"),
        excuse(pattern="", path="train.py"),
        excuse(signature="abc", path="src/*"),
        excuse(expires=TODAY),
    ],
)
def test_suppressions_excuse_with_their_reason(matching: Suppression) -> None:
    done = checked(culprit(), suppressions=[matching])
    assert done.passes
    assert done.growths[0].standing is CheckReason.SUPPRESSED
    assert done.growths[0].excuse == "wanted"
    assert done.remarks == []


@pytest.mark.parametrize(
    "other",
    [
        excuse(pattern="Other.*"),
        excuse(pattern="", signature="abd"),
        excuse(signature="abd"),
        excuse(path="tests/*"),
        excuse(path="rc/train.py"),
    ],
)
def test_a_suppression_speaks_only_of_what_all_of_it_matches(other: Suppression) -> None:
    done = checked(culprit(), suppressions=[other])
    assert not done.passes
    assert len(done.remarks) == 1
    assert "matches nothing" in done.remarks[0]


def test_a_suppression_by_a_signature_that_is_gone_tells_what_lasts_longer() -> None:
    (remark,) = checked(culprit(), suppressions=[excuse(pattern="", signature="old")]).remarks
    assert "A signature changes with the names of variables and functions" in remark
    (remark,) = checked(culprit(), suppressions=[excuse(pattern="Other.*")]).remarks
    assert "signature" not in remark


def test_an_expired_suppression_is_reported_and_does_not_count() -> None:
    done = checked(culprit(), suppressions=[excuse(expires=date(2026, 5, 31))])
    assert not done.passes
    assert len(done.remarks) == 1
    assert "expired on 2026-05-31" in done.remarks[0]


def test_what_the_baseline_knows_passes_and_what_is_new_fails() -> None:
    assert standing(culprit(), baseline=known()) is CheckReason.KNOWN
    new = culprit(signature="new")
    assert standing(new, baseline=known()) is CheckReason.FAILED
    assert standing(culprit(growth="within"), baseline=known()) is CheckReason.FAILED
    assert standing(culprit(device="cuda:0"), baseline=known()) is CheckReason.FAILED


def entry(**changes: object) -> Baseline:
    """Return a baseline as it is written: with what tells an entry under another signature."""
    return known(**{"path": "main()·trainer.history", "kind": "list", "type": "list", **changes})


@pytest.mark.parametrize(
    "renamed",
    [
        culprit(signature="new", path="main()·obj.history"),
        culprit(signature="new", name="Trainer.fit.history"),
        culprit(signature="new", phase="epoch"),
    ],
)
def test_what_the_baseline_knows_is_known_by_name_and_nature_too(renamed: Culprit) -> None:
    done = checked(renamed, baseline=entry(reason="old friend"))
    assert (done.passes, done.gone) == (True, [])
    (growth,) = done.growths
    assert (growth.standing, growth.known_as, growth.excuse) == (
        CheckReason.KNOWN,
        "abc",
        "old friend",
    )
    assert "under another signature" in growth.why
    faster = culprit(signature="new", bytes_per_unit=8.0 * MB, interval=(7.9 * MB, 8.1 * MB))
    failed = checked(faster, baseline=entry())
    assert (failed.passes, failed.gone) == (False, [])
    assert "got faster" in failed.growths[0].why


@pytest.mark.parametrize(
    "other",
    [
        culprit(signature="new", name="Other.history"),
        culprit(signature="new", name="Trainer.losses"),
        culprit(signature="new", kind="dict"),
        culprit(signature="new", device="cuda:0"),
        culprit(signature="new", growth="within"),
        culprit(signature="new", workers=2),
        finding(signature="new", title="Trainer.history", kind="list", unit="epoch"),
    ],
)
def test_what_only_resembles_what_is_known_is_new(other: Culprit | Finding) -> None:
    assert standing(other, baseline=entry()) is CheckReason.FAILED


def test_findings_are_known_by_what_they_speak_of() -> None:
    remembered = baseline_of(checked(finding(title="Native code holds Cache", signature="old")))
    same = finding(title="Native code holds Cache", signature="new")
    other = finding(title="Native code holds Queue", signature="new")
    assert standing(same, baseline=remembered) is CheckReason.KNOWN
    assert standing(other, baseline=remembered) is CheckReason.FAILED


def test_an_entry_of_another_signature_excuses_one_thing_at_most() -> None:
    first, second = culprit(signature="first"), culprit(signature="second")
    place = [growth.standing for growth in checked(first, second, baseline=entry()).growths]
    assert place == [CheckReason.FAILED, CheckReason.KNOWN]
    for its_own in (culprit(), culprit(severity=Severity.NOTE)):
        done = checked(its_own, second, baseline=entry())
        assert done.growths[0].standing is CheckReason.FAILED
        assert done.growths[0].signature == "second"


def test_how_a_run_ended_is_known_by_its_signature_alone() -> None:
    died = finding(kind="workers_died", title="1 process died", signature="old")
    remembered = baseline_of(checked(died))
    assert standing(died, baseline=remembered) is CheckReason.KNOWN
    another = msgspec.structs.replace(died, signature="new")
    assert standing(another, baseline=remembered) is CheckReason.FAILED


def test_a_baseline_rewritten_recognises_what_was_renamed() -> None:
    before = entry(reason="old friend")
    renamed = culprit(signature="new", name="Trainer.fit.history")
    (after,) = baseline_of(checked(renamed, baseline=before), before).culprits
    assert (after.signature, after.name, after.reason) == ("new", renamed.name, "old friend")
    assert after.bytes_per_unit == before.culprits[0].bytes_per_unit
    bare = known()
    (filled,) = baseline_of(checked(culprit(), baseline=bare), bare).culprits
    assert (filled.kind, filled.type) == ("list", "list")


@pytest.mark.parametrize(
    ("rate", "interval", "tolerance", "expected"),
    [
        (4.8, (4.7, 4.9), 0.2, CheckReason.KNOWN),
        (4.9, (4.8, 5.0), 0.2, CheckReason.FAILED),
        (4.9, (4.8, 5.0), 0.5, CheckReason.KNOWN),
        (4.9, (3.0, 7.0), 0.2, CheckReason.KNOWN),
        (40.0, (float("-inf"), float("inf")), 0.2, CheckReason.KNOWN),
        (4.01, (4.005, 4.02), 0.0, CheckReason.FAILED),
    ],
)
def test_what_is_known_fails_once_it_is_surely_faster(
    rate: float, interval: tuple[float, float], tolerance: float, expected: CheckReason
) -> None:
    faster = culprit(bytes_per_unit=rate * MB, interval=(interval[0] * MB, interval[1] * MB))
    assert standing(faster, baseline=known(), tolerance=tolerance) is expected


def test_rates_of_the_baseline_are_compared_in_like_units() -> None:
    per_step = culprit(unit="step", bytes_per_unit=0.04 * MB, interval=(0.039 * MB, 0.041 * MB))
    assert standing(per_step, baseline=known()) is CheckReason.KNOWN
    twice = culprit(unit="step", bytes_per_unit=0.08 * MB, interval=(0.079 * MB, 0.081 * MB))
    assert standing(twice, baseline=known()) is CheckReason.FAILED
    assert standing(culprit(unit="fold"), baseline=known()) is CheckReason.KNOWN


def test_entries_that_excuse_nothing_are_reported() -> None:
    assert [entry.signature for entry in checked(baseline=known()).gone] == ["abc"]
    assert checked(culprit(), baseline=known()).gone == []
    harmless = checked(culprit(severity=Severity.NOTE), baseline=known())
    assert [entry.signature for entry in harmless.gone] == ["abc"]


@pytest.mark.parametrize("verdict", [RunVerdict.INCONCLUSIVE, RunVerdict.OUT_OF_MEMORY])
def test_a_run_that_proves_nothing_does_not_shrink_the_baseline(verdict: RunVerdict) -> None:
    thin = report(verdict=verdict)
    done = check(thin, Allowed(today=TODAY, baseline=known()))
    assert done.gone == []
    _, unsettled = stale_baseline_entries(done.growths, thin, known())
    assert new_baseline(done.growths, known(), unsettled) == known()


def test_a_run_without_the_phase_says_nothing_of_what_grew_in_it() -> None:
    validated = known(phase="validation")
    phase = PhaseMemory(
        phase="train", occurrences=1, metric="rss", before_bytes=0, peak_bytes=0, after_bytes=0,
        kept_bytes=0,
    )  # fmt: skip
    trained = msgspec.structs.replace(report(), phases=[phase])
    assert check(trained, Allowed(today=TODAY, baseline=validated)).gone == []


def baseline_of(done: Check, before: Baseline | None = None) -> Baseline:
    return new_baseline(done.growths, before, [])


def test_a_new_baseline_has_what_fails_in_a_stable_order() -> None:
    suspects = [culprit(name=name, signature=name) for name in ("c", "a", "b")]
    forward = baseline_of(checked(*suspects, finding(severity=Severity.NOTE)))
    backward = baseline_of(checked(*reversed(suspects)))
    assert forward == backward
    assert [entry.name for entry in forward.culprits] == ["a", "b", "c"]
    assert checked(*suspects, baseline=forward).passes


def test_a_baseline_rewritten_keeps_reasons_and_rates_that_hold() -> None:
    before = known(reason="old friend", kind="list", type="list")
    slightly = culprit(bytes_per_unit=4.2 * MB, interval=(4.1 * MB, 4.3 * MB))
    assert baseline_of(checked(slightly, baseline=before), before) == before
    much = culprit(bytes_per_unit=8.0 * MB, interval=(7.9 * MB, 8.1 * MB))
    after = baseline_of(checked(much, baseline=before), before).culprits[0]
    assert (after.bytes_per_unit, after.reason) == (8.0 * MB, "old friend")
    assert baseline_of(checked(baseline=before), before).culprits == []


def test_what_is_excused_otherwise_is_not_written_into_the_baseline() -> None:
    assert baseline_of(checked(culprit(), ignored=["*"])).culprits == []
    assert baseline_of(checked(culprit(), suppressions=[excuse()])).culprits == []
    assert baseline_of(checked(culprit(), limit=to_growth_limit("1 TB/epoch"))).culprits == []


def test_what_fails_comes_first() -> None:
    excused = excuse(pattern="", signature="known")
    done = checked(
        culprit(signature="known"), culprit(signature="new", name="fresh"), suppressions=[excused]
    )
    assert [growth.standing for growth in done.growths] == [
        CheckReason.FAILED,
        CheckReason.SUPPRESSED,
    ]
    assert "fresh grows by" in done.headline


def test_what_grows_in_workers_is_known_apart() -> None:
    in_workers = culprit(workers=2, bytes_per_unit=40.0 * MB, interval=(39.0 * MB, 41.0 * MB))
    assert standing(in_workers, baseline=known()) is CheckReason.FAILED
    both = baseline_of(checked(culprit(), in_workers))
    assert len(both.culprits) == 2
    assert checked(culprit(), in_workers, baseline=both).passes


def test_of_two_that_are_the_same_the_baseline_remembers_the_faster() -> None:
    slow = culprit(bytes_per_unit=1.0 * MB, interval=(0.9 * MB, 1.1 * MB))
    for order in ((slow, culprit()), (culprit(), slow)):
        remembered = baseline_of(checked(*order))
        assert [entry.bytes_per_unit for entry in remembered.culprits] == [4.0 * MB]


def test_places_of_the_project_come_before_those_of_libraries() -> None:
    places = ["/usr/lib/torch/nn.py:3", "src/train.py:9"]
    growth = checked(culprit(fed_at=places)).growths[0]
    assert growth.place == "src/train.py:9"
    assert sorted(growth.places) == sorted(places)
