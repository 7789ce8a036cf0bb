"""Who else holds what a container names: emptying one of them alone would free nothing."""

from __future__ import annotations

import pytest
from heap_programs import RunProgram
from hypothesis import given, settings
from hypothesis import strategies as st
from optional_torch import needs_torch

from leakscope.heap.graph import WalkRequest, engine_name, walk

KEPT_TWICE = """
import torch

class Logger:
    def __init__(self):
        self.records = []
    def log(self, step, output):
        self.records.append((step, {'output': output}))

class Trainer:
    def __init__(self):
        self.outputs, self.logger, self.latest = [], Logger(), {}

trainer = Trainer()
def fit():
    for step in range(40):
        output = torch.rand(32, 512)
        trainer.outputs.append(output)
        trainer.latest['output'] = output
        KEEP
    look()
fit()
"""


@needs_torch
def test_another_container_that_keeps_the_same_objects_is_named(run_program: RunProgram) -> None:
    program = KEPT_TWICE.replace("KEEP", "trainer.logger.log(step, output)")
    row = run_program(program).row("Trainer.outputs")
    assert row.also_held_by == ["Logger.records"]
    assert row.host_bytes < 10_000 < 40 * 32 * 512 * 4 < row.shared_bytes["host"]


@needs_torch
def test_who_holds_only_the_latest_is_not_named(run_program: RunProgram) -> None:
    row = run_program(KEPT_TWICE.replace("KEEP", "pass")).row("Trainer.outputs")
    assert row.also_held_by == []


@needs_torch
def test_views_of_the_same_storage_are_the_same_memory(run_program: RunProgram) -> None:
    program = KEPT_TWICE.replace("KEEP", "trainer.logger.log(step, output[1:])")
    assert run_program(program).row("Trainer.outputs").also_held_by == ["Logger.records"]


@needs_torch
def test_several_others_are_all_named(run_program: RunProgram) -> None:
    program = "seen = set()\n" + KEPT_TWICE.replace(
        "KEEP", "trainer.logger.log(step, output); seen.add(output)"
    )
    [row] = [row for row in run_program(program).last.rows if row.also_held_by]
    assert {row.name, *row.also_held_by} == {"seen", "Trainer.outputs", "Logger.records"}


@needs_torch
def test_a_container_within_the_container_is_not_another(run_program: RunProgram) -> None:
    taken = run_program(
        """
        import torch
        kept = []
        for _ in range(40):
            pair = {'whole': torch.rand(32, 512)}
            pair['again'] = [pair['whole']]
            kept.append(pair)
        look()
        """
    )
    assert taken.row("kept").also_held_by == []


@pytest.mark.skipif(engine_name() != "native", reason="the native engine is not built")
@given(
    st.lists(
        st.lists(st.integers(0, 29), min_size=8, max_size=16),
        min_size=2,
        max_size=8,
    ),
    st.lists(st.integers(0, 7), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_both_engines_tell_the_same(kept: list[list[int]], nested: list[int]) -> None:
    data = [[bytearray(3000)] for _ in range(30)]
    containers: list[list[object]] = [[data[i] for i in items] for items in kept]
    for at in nested:
        containers[at % len(containers)].append(containers[(at * 5 + 1) % len(containers)])
    del data
    shown = []
    for engine in ("native", "reference"):
        nodes = walk(WalkRequest(roots=list(containers), cutoff_bytes=1000), engine=engine).nodes
        ids = [id(value) for value in nodes.objects]
        shown.append(
            {
                ids[n]: ([ids[h] for h in others], [[ids[h] for h in s] for s in samples])
                for n, (others, samples) in enumerate(zip(nodes.others, nodes.holders, strict=True))
                if others or samples
            }
        )
    assert shown[0] == shown[1]


class TestOtherNames:
    """One container under several names: the most human is shown, the others are evidence."""

    def test_an_attribute_and_a_variable(self, run_program: RunProgram) -> None:
        taken = run_program(
            """
            class Callback:
                def __init__(self, history):
                    self.history = history

            def fit(losses):
                callback = Callback(losses)
                for step in range(3000):
                    losses.append(float(step))
                look()

            history = []
            fit(history)
            """
        )
        row = taken.row("history")
        assert row.also_named == ["fit.losses", "Callback.history"]

    def test_a_container_with_one_name_has_no_other(self, run_program: RunProgram) -> None:
        taken = run_program(
            """
            history = [float(step) for step in range(3000)]
            look()
            """
        )
        assert taken.row("history").also_named == []

    def test_a_reference_from_its_own_contents_is_no_name(self, run_program: RunProgram) -> None:
        taken = run_program(
            """
            class Entry:
                def __init__(self, among):
                    self.among = among

            history = []
            for step in range(300):
                history.append(Entry(history))
            look()
            """
        )
        assert taken.row("history").also_named == []
