from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import report_samples as samples
from hostile_text import ATTACKS, infested

from leakscope.model.report import Report
from leakscope.report import json_schema, render_json
from leakscope.report.json import schema_text

DOCUMENTED = Path(__file__).parents[2] / "docs" / "report-schema.json"
TOP_LEVEL = {
    "schema_version", "verdict", "headline", "growth", "culprits", "findings", "cleared",
    "overhead", "errors",
}  # fmt: skip
CULPRIT = {
    "rank", "name", "path", "kind", "type", "growth", "unit", "phase", "bytes_per_unit",
    "interval", "items_per_unit", "share", "total_bytes", "device", "severity", "readings",
    "defined_at", "fed_at", "allocated_at", "holds", "signature", "remedy",
}  # fmt: skip
FINDING = (CULPRIT - {"name", "path", "type", "items_per_unit", "holds"}) | {"title", "text"}
REPORTS = [samples.leaking, samples.clean, samples.inconclusive, samples.empty]


@pytest.mark.parametrize("make", REPORTS)
def test_reports_obey_the_schema(make) -> None:
    jsonschema.validate(json.loads(render_json(make())), json_schema())


def test_comparisons_obey_their_part_of_the_schema() -> None:
    schema = json_schema()
    part = {**schema, "$ref": "#/$defs/Comparison"}
    jsonschema.validate(json.loads(render_json(samples.comparison())), part)


def test_the_schema_refuses_what_is_no_report() -> None:
    broken = {**json.loads(render_json(samples.clean())), "verdict": "perhaps"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, json_schema())


def test_the_fixed_names_are_there() -> None:
    report = json.loads(render_json(samples.leaking()))
    assert set(report) >= TOP_LEVEL
    assert set(report["culprits"][0]) >= CULPRIT
    assert set(report["findings"][0]) >= FINDING
    assert set(report["culprits"][0]["remedy"]) == {"title", "text", "advice", "diff", "bound"}
    assert set(report["growth"][0]) == {
        "metric", "unit", "bytes_per_unit", "interval", "explained_share",
        "named_share", "per_event",
    }  # fmt: skip
    assert {"wall_share", "peak_bytes"} <= set(report["overhead"])


def test_fixed_vocabularies_are_spelt_as_documented() -> None:
    report = json.loads(render_json(samples.leaking()))
    assert report["verdict"] == "leak"
    assert [c["severity"] for c in report["culprits"]] == ["critical", "warning", "note"]
    assert [c["growth"] for c in report["culprits"]] == ["across", "within", "across"]
    assert report["culprits"][2]["defined_at"] is None


def test_the_documented_schema_is_the_current_one() -> None:
    assert DOCUMENTED.read_text(encoding="utf-8") == schema_text()


def test_what_is_read_back_is_the_report() -> None:
    report = samples.leaking()
    assert msgspec.json.decode(render_json(report), type=Report) == report


def test_open_ends_of_an_interval_become_null() -> None:
    report = json.loads(render_json(samples.inconclusive()))
    assert report["growth"][0]["interval"] == [None, None]


@pytest.mark.parametrize("attack", ATTACKS)
def test_any_text_can_be_encoded(attack: str) -> None:
    text = render_json(infested(samples.leaking(), attack))
    text.encode("utf-8")
    jsonschema.validate(json.loads(text), json_schema())
    assert json.loads(text)["culprits"][0]["name"].startswith("Trainer.all_pred_boxes")


def test_equal_reports_give_equal_json() -> None:
    assert render_json(samples.leaking()) == render_json(samples.leaking())
