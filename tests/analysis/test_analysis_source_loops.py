"""Which variables of a training loop outlive their iteration, and where gradients are cleared."""

from __future__ import annotations

import textwrap

import pytest

from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.training_loops import (
    Fate,
    Lifetime,
    clearings,
    freezing,
    lifetime,
    never_clears,
    training_loop,
)

LOOP = """
def train(model, loader, optimizer):
    mask = make_mask()
    hidden = None
    best = None
    total = 0.0
    for epoch in range(10):
        schedule = make_schedule(epoch)
        for x, y in loader:
            features = extract(x)
            with autocast():
                logits, hidden = model(features * mask, hidden)
            if epoch == 3:
                sample = logits.detach()
                show(sample)
            loss = criterion(logits, y) * schedule
            loss.backward()
            optimizer.step()
            predicted = logits.argmax(1)
            total += loss.item()
            kept = predicted
            count(kept)
            noted = loss.detach()
        for x, y in loader:
            outputs = model(x)
            report(outputs)
        everything = torch.cat(collect())
        save(everything)
        if total > 3:
            best = everything.clone()
        print(epoch, noted)
    return best
"""


def index(source: str) -> SourceIndex:
    return SourceIndex({"/p/train.py": textwrap.dedent(source)}, "/p")


def life(source: str, name: str, function: str = "train") -> Lifetime | None:
    program = index(source).program
    scope = program.functions[function][0] if function else program.modules["/p/train.py"]
    loop = training_loop(program, scope)
    assert loop is not None
    return lifetime(program, scope, loop, name)


@pytest.mark.parametrize(
    ("name", "fate", "replaced_at"),
    [
        ("x", Fate.NEXT_BATCH, 9),
        ("features", Fate.REPLACED, 10),
        ("logits", Fate.REPLACED, 12),
        ("sample", Fate.STAYS, None),
        ("predicted", Fate.STAYS, None),
        ("kept", Fate.STAYS, None),
        ("outputs", Fate.STAYS, None),
    ],
)
def test_how_long_a_variable_outlives_its_iteration(
    name: str, fate: Fate, replaced_at: int | None
) -> None:
    found = life(LOOP, name)
    assert found is not None
    assert (found.fate, found.replaced_at) == (fate, replaced_at)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mask", "made once"),
        ("hidden", "carried into the next step"),
        ("total", "a running total"),
        ("schedule", "made once an epoch and read at each step"),
        ("best", "read after the loops"),
        ("noted", "read after the loop of steps"),
        ("model", "a parameter"),
        ("nothing", "never assigned"),
    ],
)
def test_what_is_needed_later_is_nobodys_leftover(name: str, why: str) -> None:
    assert life(LOOP, name) is None, why


def test_a_function_that_reads_a_global_needs_it() -> None:
    source = """
        for x in loader:
            out = model(x)
            shown = out.detach()
            out.sum().backward()
        def draw():
            plot(shown)
    """
    assert life(source, "shown", function="") is None
    assert life(source, "out", function="") is not None


def test_a_del_in_the_pass_ends_a_life_before_its_line() -> None:
    source = """
        def train():
            for x in loader:
                loss = model(x)
                if first:
                    big = x.repeat(9)
                del big
                loss.backward()
    """
    found = life(source, "big")
    assert found is not None
    assert (found.fate, found.replaced_at) == (Fate.REPLACED, 7)


@pytest.mark.parametrize(
    ("name", "line"),
    [("features", 12), ("logits", 19), ("sample", 15), ("predicted", 21), ("outputs", 26)],
)
def test_where_a_del_may_stand(name: str, line: int) -> None:
    """Behind the last reading, where every pass that assigns it comes along."""
    found = life(LOOP, name)
    assert found is not None
    assert found.last_used is not None
    assert found.last_used.end_lineno == line


def test_a_batch_that_is_read_behind_its_loop_gets_no_del() -> None:
    """The loop may have made no pass at all, and then the name would not exist."""
    source = """
        def train():
            for epoch in range(3):
                for x in loader:
                    model(x).backward()
                for picture in validation:
                    show(picture)
                keep(picture)
    """
    found = life(source, "picture")
    assert found is not None
    assert found.last_used is None


class TestTrainingLoop:
    """The loop whose iterations compute gradients, here or in a function that it calls."""

    @pytest.mark.parametrize(
        "step",
        [
            "loss.backward()",
            "accelerator.backward(loss)",
            "scaler.scale(loss).backward()",
            "self.training_step(batch)",
            "take_step(batch)",
            "optimizer.step()",
        ],
    )
    def test_it_is_found(self, step: str) -> None:
        source = f"""
            def take_step(batch):
                compute(batch).backward()
            class Trainer:
                def training_step(self, batch):
                    take_step(batch)
                def run(self):
                    for epoch in range(3):
                        self.model.train()
                        for batch in self.loader:
                            {step}
                        for batch in self.validation:
                            self.evaluate(batch)
                def train(self):
                    self.run()
        """
        program = index(source).program
        loop = training_loop(program, program.functions["run"][0])
        assert loop is not None
        assert loop.lineno == 10

    def test_a_loop_of_evaluation_is_none(self) -> None:
        source = """
            def evaluate(model):
                model.train(False)
                for x in loader:
                    model(x)
            def train(model):
                for x in loader:
                    model(x).backward()
        """
        program = index(source).program
        assert training_loop(program, program.functions["evaluate"][0]) is None


class TestClearing:
    """Where gradients are cleared, next to the forward and the backward pass."""

    def test_after_the_forward_pass(self) -> None:
        found = clearings(
            index("""
            for x, y in loader:
                features = backbone(x)
                logits = head(features)
                loss = criterion(logits, y)
                optimizer.zero_grad()
                loss.backward()
            """).program
        )
        assert [c.late_after.lineno for c in found if c.late_after] == [3]

    @pytest.mark.parametrize(
        "body",
        [
            "optimizer.zero_grad(); loss = f(x); loss.backward(); optimizer.step()",
            "loss = f(x); loss.backward(); optimizer.step(); optimizer.zero_grad()",
            "lr = schedule(x); optimizer.zero_grad(); loss = f(x); loss.backward()",
        ],
    )
    def test_before_the_forward_pass_or_after_the_step(self, body: str) -> None:
        lines = "".join(f"    {line.strip()}\n" for line in body.split(";"))
        found = clearings(index(f"for x in loader:\n{lines}").program)
        assert [c.late_after for c in found] == [None]

    def test_gathering_gradients_over_several_passes_is_not_late(self) -> None:
        found = clearings(
            index("""
            for i, x in enumerate(loader):
                loss = f(x)
                if i % 4 == 0:
                    optimizer.zero_grad()
                loss.backward()
            """).program
        )
        assert [c.late_after for c in found] == [None]

    @pytest.mark.parametrize(
        ("call", "keeps"),
        [
            ("zero_grad()", False),
            ("zero_grad(set_to_none=True)", False),
            ("zero_grad(set_to_none=False)", True),
            ("zero_grad(False)", True),
            ("zero_grad(set_to_none=flag)", False),
        ],
    )
    def test_zeros_that_stay(self, call: str, keeps: bool) -> None:
        found = clearings(index(f"for x in loader:\n    optimizer.{call}\n").program)
        assert [c.keeps_zeros for c in found] == [keeps]

    def test_a_program_that_never_clears(self) -> None:
        source = "for x in loader:\n    loss = f(x)\n    loss.backward()\n    optimizer.step()\n"
        found = never_clears(index(source).program)
        assert found is not None
        assert found.line == 3

    @pytest.mark.parametrize(
        "clears",
        ["optimizer.zero_grad()", "p.grad = None", "p.grad.zero_()", "model.zero_grad(True)"],
    )
    def test_a_program_that_clears_somehow(self, clears: str) -> None:
        source = f"for x in loader:\n    loss = f(x)\n    loss.backward()\n    {clears}\n"
        assert never_clears(index(source).program) is None

    @pytest.mark.parametrize("text", ["p.requires_grad = False", "m.requires_grad_(False)"])
    def test_where_parameters_are_frozen(self, text: str) -> None:
        assert freezing(index(f"for p in ps:\n    {text}\n").program) is not None
        assert freezing(index(f"for p in ps:\n    {text[:-6]}True)\n").program) is None
