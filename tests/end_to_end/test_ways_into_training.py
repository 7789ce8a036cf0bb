"""Programs that are set up for seconds and reach their training in many ways: all are seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leakscope.analysis import analyse
from leakscope.model.report import RunVerdict
from leakscope.recording import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PROGRAM = Path(__file__).parent / "programs" / "set_up_for_seconds.py"
WAYS = {
    "module": "trainer = Trainer()\nresult = trainer.fit()\nprint(result['loss'])",
    "main": "def main():\n    print(Trainer().fit())\nmain()",
    "exit code": "def main():\n    Trainer().fit()\n    return 3\nsys.exit(main())",
    "exception": "def main():\n    Trainer().fit()\n    raise RuntimeError('boom')\nmain()",
    "asyncio": (
        "async def main():\n    trainer = Trainer()\n    await asyncio.to_thread(trainer.fit)\n"
        "asyncio.run(main())"
    ),
    "coroutine": "async def main():\n    Trainer().fit()\nasyncio.run(main())",
    "thread": (
        "trainer = Trainer()\nthread = threading.Thread(target=trainer.fit)\n"
        "thread.start()\nthread.join()"
    ),
    "partial": "trainer = Trainer()\nrun = functools.partial(trainer.fit, epochs=6)\nrun()",
    "object": "class App:\n    def run(self):\n        Trainer().fit()\nApp().run()",
}
ENDS = {"exit code": 3, "exception": 1}


@pytest.mark.parametrize("way", list(WAYS))
def test_training_after_a_long_set_up_is_recorded_to_its_end(tmp_path: Path, way: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.read_text() + WAYS[way] + "\n")
    command = ["-m", "leakscope", "run", "--quiet", "--no-report", "--out", "run", "train.py"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == ENDS.get(way, 0), done.stderr
    report = analyse(open_run(tmp_path / "run"))
    assert report.work.steps == 360
    assert report.verdict is RunVerdict.LEAK
    first = report.culprits[0]
    assert first.name == "Trainer.history"
    assert first.fed_at == [f"train.py:{feeding_line()}"]
    assert first.bytes_per_unit == pytest.approx(32_880, rel=0.1)


def feeding_line() -> int:
    lines = PROGRAM.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if "history.append" in line)
