"""The index of the sample reports: the page of runs, with what was held side by side."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"


def test_the_index_links_every_sample_report(tmp_path: Path) -> None:
    for report in REPORTS.glob("*/*.json"):
        (tmp_path / report.parent.name).mkdir(exist_ok=True)
        shutil.copy(report, tmp_path / report.parent.name)
    place = ROOT / "examples" / "make_reports.py"
    described = importlib.util.spec_from_file_location("make_reports", place)
    assert described is not None
    assert described.loader is not None
    make_reports = importlib.util.module_from_spec(described)
    described.loader.exec_module(make_reports)
    page = make_reports.write_index(tmp_path).read_text()
    links = set(re.findall(r'href="([^"#]+\.html)"', page))
    assert links == {str(path.relative_to(REPORTS)) for path in REPORTS.glob("*/*.html")}
    assert all(example.title in page for example in make_reports.EXAMPLES.values())
