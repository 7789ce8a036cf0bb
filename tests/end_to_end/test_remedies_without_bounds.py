"""Containers for which a bound of one's own would be wrong, each in one recorded training."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from snippet_recorder import SnippetRecorder

from leakscope.analysis import analyse
from leakscope.recording import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
    import contextlib
    import heapq

    import numpy as np
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.rand(320, 16)), batch_size=16)


    class Ring:
        def __init__(self, capacity):
            self.capacity, self.items = capacity, []

        def push(self, item):
            if len(self.items) < self.capacity:
                self.items.append(item)


    class Card:
        def __init__(self):
            self.shown = []

        def show(self, logits):
            self.shown.append({"mean": float(logits.mean()), "logits": logits[:4]})


    def main():
        ring, card, hard = Ring(100_000), Card(), []
        with contextlib.ExitStack() as at_end:
            for epoch in range(10):
                for number, (x,) in enumerate(loader):
                    loss = model(x).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                heapq.heappush(hard, (loss.item(), epoch, torch.rand(1 << 18)))
                ring.push(torch.rand(1 << 18))
                card.show(np.random.rand(1 << 10, 128))
                at_end.callback(len, torch.rand(1 << 18))
        return heapq.nlargest(3, hard)


    main()
    """
EXPECTED = {
    "at_end._exit_callbacks": "Open the ExitStack in each ",
    "hard": "Keep the N largest of ",
    "Ring.items": "Lower self.capacity if Ring.items takes too much",
    "Card.shown": "Copy the slice before it is stored in Card.shown",
}


def test_a_recorded_training_gets_the_remedy_that_suits_each_container(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    report = analyse(open_run(recorder.record(tmp_path)))
    remedies = {culprit.name: culprit.remedy for culprit in report.culprits}
    for name, title in EXPECTED.items():
        (reported,) = [remedy for full, remedy in remedies.items() if full.endswith(name)]
        assert reported.title.startswith(title)
        assert "deque" not in reported.text
    assert '"logits": logits[:4].copy()' in (remedies["Card.shown"].diff or "")
