"""A check in the forms that CI reads: valid, stable, and harmless whatever names are in it."""

from __future__ import annotations

import ast
import json
import re
from datetime import date
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested

from leakscope.analysis.gate import Allowed, check
from leakscope.model.documents import Baseline, Check, CheckReason, Known, Outcome
from leakscope.model.report import Report, Severity
from leakscope.report import json_schema
from leakscope.report.gates import FORMS, render_check
from leakscope.report.gates.sarif import SourceLocation, rule_of, to_location
from leakscope.report.json import render_json

ROOT = Path(__file__).parents[2]
SARIF = ROOT / "tests" / "data" / "sarif" / "sarif-2.1.0-rtm.5.json"
COMMANDS = (
    "\n::error::injected",
    "::stop-commands::token",
    ",line=1::%0A::warning::x",
    "]]><failure/>",
    "##[error]legacy",
    "\x00\x08\x1b[31m\x7f\x9f",
    "\ud800half\udfff",
    "\ufffe\uffff",
    "x" * 5000,
)
HOSTILE = (*ATTACKS, *COMMANDS)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def failing(report: Report | None = None, **allowed: object) -> Check:
    return check(report or samples.leaking(), Allowed(today=date(2026, 6, 1), **allowed))


def mixed() -> Check:
    """One of each: what fails, what is known, what is ignored, what is gone."""
    report = samples.leaking()
    grave = msgspec.structs.replace(report.findings[0], severity=Severity.WARNING)
    report = msgspec.structs.replace(report, findings=[grave, *report.findings[1:]])
    first, second = report.culprits[:2]
    entries = [
        Known(
            name=name, signature=signature, growth=growth, bytes_per_unit=first.bytes_per_unit,
            unit=first.unit, phase=first.phase,
        )
        for name, signature, growth in (
            (first.name, first.signature, first.growth),
            ("no longer there", "gone", "across"),
        )
    ]  # fmt: skip
    return failing(
        report, baseline=Baseline(culprits=entries), ignored=[second.name], remarks=["Mend."]
    )


def thin(*, strict: bool = False) -> Check:
    return failing(samples.inconclusive(), strict=strict)


CHECKS = [failing, mixed, thin, lambda: thin(strict=True), lambda: failing(samples.clean())]


def sarif_schema() -> dict[str, object]:
    return json.loads(SARIF.read_text())


@pytest.mark.parametrize("make", CHECKS)
def test_json_obeys_the_documented_schema(make) -> None:
    part = {**json_schema(), "$ref": "#/$defs/Check"}
    text = render_check(make(), "json")
    jsonschema.validate(json.loads(text), part)
    assert msgspec.json.decode(text, type=Check).growths == make().growths


def test_a_baseline_obeys_the_documented_schema_and_is_read_back() -> None:
    baseline = Baseline(
        culprits=[Known(name="a", signature="b", growth="across", bytes_per_unit=1.0, unit="step")]
    )
    text = render_json(baseline)
    jsonschema.validate(json.loads(text), {**json_schema(), "$ref": "#/$defs/Baseline"})
    assert msgspec.json.decode(text, type=Baseline) == baseline
    assert len(text.splitlines()) > 8, "each field has a line of its own for reviews"


@pytest.mark.parametrize("make", CHECKS)
def test_sarif_obeys_the_official_schema(make) -> None:
    text = render_check(make(), "sarif", version="0.1.0", otherwise="train.py")
    jsonschema.validate(json.loads(text), sarif_schema())


def test_the_official_schema_refuses_what_is_no_sarif() -> None:
    log = json.loads(render_check(failing(), "sarif"))
    log["runs"][0]["results"][0]["level"] = "terrible"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, sarif_schema())


def results(made: Check, **options: str) -> list[dict]:
    return json.loads(render_check(made, "sarif", **options))["runs"][0]["results"]


def excused() -> Check:
    """One of each standing that excuses, and one thing that fails."""
    made = failing()
    first = made.growths[0]
    standings = (
        CheckReason.KNOWN,
        CheckReason.SUPPRESSED,
        CheckReason.IGNORED,
        CheckReason.ALLOWED,
    )
    growths = [
        msgspec.structs.replace(first, standing=item, name=f"is_{item.value}") for item in standings
    ]
    return msgspec.structs.replace(made, growths=[first, *growths])


def test_sarif_tells_what_fails_and_nothing_that_code_scanning_would_take_for_it() -> None:
    for made in (mixed(), excused()):
        shown = results(made)
        failed = [item for item in made.growths if item.standing is CheckReason.FAILED]
        assert len(shown) == len(failed) > 0
        assert {r["properties"]["standing"] for r in shown} == {"failed"}
        assert not [r for r in shown if "suppressions" in r]
        rules = json.loads(render_check(made, "sarif"))["runs"][0]["tool"]["driver"]["rules"]
        assert {rule["id"] for rule in rules} == {r["ruleId"] for r in shown}


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("sarif", "github")])
def test_what_is_excused_is_reported_everywhere_else(form: str) -> None:
    text = render_check(excused(), form).replace("\\", "")
    for standing in ("known", "suppressed", "ignored", "allowed"):
        assert f"is_{standing}" in text
    notices = render_check(excused(), "github")
    assert notices.count("::notice ") == 2, "what the project excuses for good is reported with it"


def test_a_fingerprint_is_the_same_whether_its_like_is_excused_or_not() -> None:
    report = samples.leaking()
    first = report.culprits[0]
    twin = msgspec.structs.replace(first, signature="twin")
    both = failing(msgspec.structs.replace(report, culprits=[first, twin]))
    item, other, *rest = both.growths
    known = msgspec.structs.replace(item, standing=CheckReason.KNOWN)
    alone = msgspec.structs.replace(both, growths=[other, known, *rest])
    assert results(alone)[0]["partialFingerprints"] == results(both)[1]["partialFingerprints"]


def moved(report: Report, lines: int) -> Report:
    def shifted(places: list[str]) -> list[str]:
        named = (place.rpartition(":") for place in places)
        return [f"{file}:{int(line) + lines}" for file, _, line in named]

    culprits = [
        msgspec.structs.replace(c, fed_at=shifted(c.fed_at), bytes_per_unit=c.bytes_per_unit * 2)
        for c in report.culprits
    ]
    return msgspec.structs.replace(report, culprits=culprits)


def test_fingerprints_stay_when_lines_move_and_rates_change() -> None:
    before = results(failing())
    after = results(failing(moved(samples.leaking(), 40)))
    prints = [result["partialFingerprints"] for result in before]
    assert prints == [result["partialFingerprints"] for result in after]
    assert before[0]["locations"] != after[0]["locations"]
    assert len({str(item) for item in prints}) == len(prints)


def renamed(report: Report, **changes: str) -> Report:
    culprits = [
        msgspec.structs.replace(c, signature=f"other-{c.signature}", path=f"main()·{c.path}")
        for c in report.culprits
    ]
    first = msgspec.structs.replace(culprits[0], **changes)
    return msgspec.structs.replace(report, culprits=[first, *culprits[1:]])


def test_the_fingerprint_that_github_matches_stays_when_a_variable_is_renamed() -> None:
    def prints(report: Report, name: str) -> list[str]:
        return [result["partialFingerprints"][name] for result in results(failing(report))]

    before, after = samples.leaking(), renamed(samples.leaking())
    for name in ("primaryLocationLineHash", "leakscopeLikeness/v1"):
        assert prints(before, name) == prints(after, name)
        for changes in ({"name": "Other"}, {"kind": "other"}, {"type": "o.Other"}):
            assert prints(before, name)[0] != prints(renamed(before, **changes), name)[0]
    assert prints(before, "leakscopeSignature/v1") != prints(after, "leakscopeSignature/v1")


def test_results_that_are_alike_have_fingerprints_of_their_own_in_any_order() -> None:
    report = samples.leaking()
    first = report.culprits[0]
    twins = [first, msgspec.structs.replace(first, signature="twin")]

    def prints(*culprits) -> list[str]:
        made = failing(msgspec.structs.replace(report, culprits=list(culprits)))
        return [r["partialFingerprints"]["primaryLocationLineHash"] for r in results(made)]

    forward, backward = prints(*twins), prints(*reversed(twins))
    assert forward[0] != forward[1]
    assert forward[:2] == backward[1::-1]


def test_rules_have_help_and_each_result_points_at_its_own() -> None:
    run = json.loads(render_check(mixed(), "sarif"))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert rules[result["ruleIndex"]]["help"]["text"]


def test_what_has_no_place_gets_the_one_that_is_given() -> None:
    made = failing()
    nowhere = [msgspec.structs.replace(item, place="", places=[]) for item in made.growths]
    made = msgspec.structs.replace(made, growths=nowhere)
    uris = [
        location["physicalLocation"]["artifactLocation"]["uri"]
        for result in results(made, otherwise="train.py")
        for location in result["locations"]
    ]
    assert set(uris) == {"train.py"}
    assert results(made)[0]["locations"] == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("src/a.py:12", SourceLocation("src/a.py", 12)),
        ("src/a.py", SourceLocation("src/a.py")),
        ("a:b.py:3", SourceLocation("a:b.py", 3)),
        ("a.py:0", SourceLocation("a.py", 1)),
        ("a.py:²", SourceLocation("a.py:²")),
        (":7", SourceLocation(":7")),
    ],
)
def test_places_are_read(text: str, place: SourceLocation) -> None:
    assert to_location(text) == place


def test_paths_become_references() -> None:
    assert SourceLocation("src/a b%.py").uri == "src/a%20b%25.py"
    assert SourceLocation("/usr/lib/a.py").uri == "file:///usr/lib/a.py"
    assert SourceLocation("a\ud800.py").uri.isascii()


def test_every_kind_of_finding_that_can_fail_has_a_rule() -> None:
    """Kinds whose severity is never above a note need none."""
    noted = {"copies", "worker_copies", "outlives_iteration", "allocation_retries"}
    kinds = set()
    for module in (ROOT / "leakscope" / "analysis").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            first = node.args[0]
            is_finding = isinstance(node.func, ast.Name) and node.func.id == "to_finding"
            if (
                is_finding
                and isinstance(first, ast.Constant)
                and "severity=Severity.NOTE,"
                not in (ast.get_source_segment(module.read_text(), node) or "")
            ):
                kinds.add(first.value)
    assert len(kinds) > 8
    unknown = {kind for kind in kinds - noted if rule_of(kind).help.startswith("See ")}
    assert unknown == set()


def test_a_kind_without_a_rule_tells_its_own_words() -> None:
    rule = rule_of("some_new_kind")
    assert (rule.id, rule.title, rule.name) == ("some_new_kind", "Some new kind", "SomeNewKind")


COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:\s\x00][^,:]*,?)+)::[^\r\n]*")


def test_annotations_name_file_line_and_title() -> None:
    lines = render_check(mixed(), "github").splitlines()
    assert all(COMMAND.fullmatch(line) for line in lines)
    assert [line.split()[0] for line in lines].count("::error") >= 1
    assert "::notice" in {line.split()[0] for line in lines}
    assert "::warning title=leakscope%3A configuration::Mend." in lines
    error = render_check(failing(), "github").splitlines()[0]
    assert re.match(r"::error file=[^,]+,line=\d+,title=leakscope%3A ", error)


def test_an_inconclusive_run_is_a_warning_and_strictly_an_error() -> None:
    assert render_check(thin(), "github").startswith("::warning ")
    assert render_check(thin(strict=True), "github").startswith("::error ")
    cases = ET.fromstring(render_check(thin(), "junit"))
    assert cases.find(".//skipped") is not None
    assert ET.fromstring(render_check(thin(strict=True), "junit")).find(".//failure") is not None


def test_junit_counts_what_it_tells() -> None:
    made = mixed()
    suite = ET.fromstring(render_check(made, "junit"))[0]
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases)
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) >= 1
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped")) == 2


def test_the_text_tells_why_and_what_to_do() -> None:
    made = mixed()
    text = render_check(made, "text", width=80)
    for wanted in ("Not allowed", "signature", "no longer needed: no longer there", "! Mend."):
        assert wanted in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b[" in render_check(made, "text", color=True)
    assert "\x1b" not in text


@pytest.mark.parametrize("attack", HOSTILE, ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_names_harm_nobody(form: str, attack: str) -> None:
    text = render_check(infested(mixed(), attack), form, otherwise="train.py")
    text.encode()
    if form != "json":
        assert not CONTROL.search(text)
    if form == "sarif":
        jsonschema.validate(json.loads(text), sarif_schema())
        uris = re.findall(r'"uri": "([^"]*)"', text)
        assert uris
        assert all(re.fullmatch(r"[A-Za-z0-9/%._~:-]+", uri) for uri in uris)
    elif form == "json":
        jsonschema.validate(json.loads(text), {**json_schema(), "$ref": "#/$defs/Check"})
    elif form == "junit":
        tree = ET.fromstring(text)
        assert {node.tag for node in tree.iter()} <= {
            "testsuites", "testsuite", "testcase", "failure", "skipped", "system-out",
        }  # fmt: skip
    elif form == "github":
        assert all(COMMAND.fullmatch(line) for line in text.splitlines())
        assert len(text.splitlines()) == len(render_check(mixed(), "github").splitlines())
    elif form == "text":
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert "##[" not in text


def test_markdown_shows_names_as_code_and_means_nothing_else() -> None:
    for attack in HOSTILE:
        text = render_check(infested(mixed(), attack), "markdown")
        outside = re.sub(r"\\.|(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
        assert "<" not in outside.replace("<br>", "")
        assert not re.search(r"[\[\]|@`]", outside)


def test_a_passing_check_says_so_in_every_form() -> None:
    made = failing(samples.clean())
    assert made.outcome is Outcome.PASSED
    assert "Nothing grows that isn't allowed." in render_check(made, "text")
    assert render_check(made, "github") == ""
    assert results(made) == []
    assert ET.fromstring(render_check(made, "junit"))[0].get("failures") == "0"
    assert "✅" in render_check(made, "markdown")
