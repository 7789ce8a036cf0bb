"""A check as JUnit XML: a test case for each thing that grows, and one for the run itself."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from leakscope.model.check import Check, Checked, Outcome, Standing
from leakscope.model.printable import clipped, one_line
from leakscope.report.checks.places import place_of
from leakscope.report.checks.telling import account_of, program_of, rate_of, why_of

_LONGEST_NAME = 200


def render_check_junit(check: Check) -> str:
    """Return the check as a test report; notes are left out."""
    told = [one for one in check.growths if one.standing is not Standing.NOTE]
    cases = [_of_run(check), *(_of_growth(one) for one in told)]
    failures = sum(case.find("failure") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    suite = ET.Element(
        "testsuite",
        name="leakscope",
        tests=str(len(cases)),
        failures=str(failures),
        errors="0",
        skipped=str(skipped),
        time="0",
    )
    suite.extend(cases)
    if check.remarks:
        ET.SubElement(suite, "system-out").text = "\n".join(map(one_line, check.remarks))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _of_run(check: Check) -> ET.Element:
    case = _case("leakscope", program_of(check))
    if check.outcome is Outcome.INCONCLUSIVE:
        verdict = "skipped" if check.passes else "failure"
        told = ET.SubElement(case, verdict, message=one_line(check.headline))
        told.text = "\n".join(map(one_line, check.missing))
    return case


def _of_growth(one: Checked) -> ET.Element:
    case = _case(f"leakscope.{one.rule}", one.name)
    place = place_of(one)
    if place is not None and place.is_in_repository:
        case.set("file", one_line(place.file))
        case.set("line", str(place.line))
    if one.standing is not Standing.FAILED:
        ET.SubElement(case, "skipped", message=one_line(why_of(one)))
        return case
    failure = ET.SubElement(
        case,
        "failure",
        type=one_line(one.rule),
        message=one_line(f"{rate_of(one) or 'grows'}. {one.why}"),
    )
    failure.text = "\n".join(map(one_line, [*account_of(one), *one.places]))
    return case


def _case(group: str, name: str) -> ET.Element:
    return ET.Element(
        "testcase", classname=one_line(group), name=clipped(name, _LONGEST_NAME), time="0"
    )
