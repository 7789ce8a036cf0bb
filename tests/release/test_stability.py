"""What users rely on stays between releases: fields may come, none may go or change its type."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from released import SCHEMA, SURFACE, schema, surface

from leakscope.model.report import REPORT_SCHEMA_MINOR, REPORT_SCHEMA_VERSION

RELEASED = json.loads(SCHEMA.read_text())
Schema = dict[str, Any]


def version_of(document: Schema) -> tuple[int, int]:
    fields = document["$defs"]["Report"]["properties"]
    return fields["schema_version"]["default"], fields.get("schema_minor", {"default": 0})[
        "default"
    ]


def breaks(old: Schema, new: Schema) -> list[str]:
    """Return what a reader of the old schema, or of an old file by the new one, would trip over."""
    return [
        trouble
        for name, form in old["$defs"].items()
        for trouble in _broken(form, new["$defs"].get(name), name)
    ]


def _broken(old: Any, new: Any, place: str) -> Iterator[str]:
    if new is None:
        yield f"{place} is gone"
        return
    if "enum" in old:
        yield from (f"{place} is never {v!r}" for v in old["enum"] if v not in new.get("enum", ()))
        return
    if "properties" in old:
        for name, form in old["properties"].items():
            yield from _broken(form, new.get("properties", {}).get(name), f"{place}.{name}")
        for name in set(new.get("required", ())) - set(old.get("required", ())):
            yield f"{place}.{name} is missing in old files"
        return
    types = [{k: v for k, v in form.items() if k != "default"} for form in (old, new)]
    if types[0] != types[1]:
        yield f"{place} has another type"


def fields_of(document: Schema) -> set[str]:
    """Return every field and every value of an enum."""
    forms = document["$defs"].items()
    fields = {f"{name}.{field}" for name, form in forms for field in form.get("properties", ())}
    return fields | {f"{name}={value}" for name, form in forms for value in form.get("enum", ())}


def test_a_report_can_be_read_by_who_read_the_last_release() -> None:
    now = schema()
    if version_of(now)[0] == version_of(RELEASED)[0]:
        assert breaks(RELEASED, now) == []


def test_the_version_tells_of_what_was_added() -> None:
    now = schema()
    assert version_of(now) == (REPORT_SCHEMA_VERSION, REPORT_SCHEMA_MINOR)
    if fields_of(now) - fields_of(RELEASED):
        assert version_of(now) > version_of(RELEASED), "raise REPORT_SCHEMA_MINOR"


def remove_a_field(document: Schema) -> None:
    del document["$defs"]["Culprit"]["properties"]["fed_at"]


def change_a_type(document: Schema) -> None:
    document["$defs"]["Culprit"]["properties"]["rank"]["type"] = "string"


def make_it_null_at_times(document: Schema) -> None:
    form = document["$defs"]["Culprit"]["properties"]["name"]
    document["$defs"]["Culprit"]["properties"]["name"] = {"anyOf": [form, {"type": "null"}]}


def change_the_items(document: Schema) -> None:
    document["$defs"]["Report"]["properties"]["culprits"]["items"]["$ref"] = "#/$defs/Finding"


def rename_a_value(document: Schema) -> None:
    document["$defs"]["RunVerdict"]["enum"].remove("leak")
    document["$defs"]["RunVerdict"]["enum"].append("leaking")


def want_a_new_field(document: Schema) -> None:
    document["$defs"]["Culprit"]["properties"]["keeper"] = {"type": "string"}
    document["$defs"]["Culprit"]["required"].append("keeper")


def remove_a_part(document: Schema) -> None:
    del document["$defs"]["Baseline"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (remove_a_field, "Culprit.fed_at is gone"),
        (change_a_type, "Culprit.rank has another type"),
        (make_it_null_at_times, "Culprit.name has another type"),
        (change_the_items, "Report.culprits has another type"),
        (rename_a_value, "RunVerdict is never 'leak'"),
        (want_a_new_field, "Culprit.keeper is missing in old files"),
        (remove_a_part, "Baseline is gone"),
    ],
)
def test_what_would_break_a_reader_is_found(change: Callable[[Schema], None], text: str) -> None:
    changed = copy.deepcopy(RELEASED)
    change(changed)
    assert breaks(RELEASED, changed) == [text]


def test_what_is_added_breaks_nobody() -> None:
    changed = copy.deepcopy(RELEASED)
    changed["$defs"]["Culprit"]["properties"]["keeper"] = {"type": "string", "default": ""}
    changed["$defs"]["RunVerdict"]["enum"].append("perhaps")
    assert breaks(RELEASED, changed) == []
    added = fields_of(changed) - fields_of(RELEASED)
    assert added == {"Culprit.keeper", "RunVerdict=perhaps"}


def test_everything_that_could_be_typed_and_called_still_can() -> None:
    now = surface()
    for place, names in json.loads(SURFACE.read_text()).items():
        assert set(names) <= set(now.get(place, ())), place
