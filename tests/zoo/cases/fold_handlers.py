"""Cross-validates a churn model many times over and writes down how each fold went."""

import io
import logging

import numpy as np
import torch
from torch import nn

REPEATS, FOLDS, ROWS, COLUMNS = 26, 5, 4000, 40
LOOKS = 8
log = logging.getLogger("churn.cv")


class FoldLog(logging.Handler):
    """Collects what is logged during a fold into the report of that fold."""

    def __init__(self, name, scores):
        super().__init__(logging.INFO)
        self.name = name
        self.scores = scores
        self.text = io.StringIO()

    def emit(self, record):
        if record.fold == self.name:
            self.text.write(self.format(record) + "\n")

    def report(self):
        least_sure = int(self.scores.std(1).argmax())
        return f"{self.name}: {self.text.getvalue().count(chr(10))} lines, unsure of {least_sure}"


def customers(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    hidden = rng.standard_normal(COLUMNS, dtype=np.float32)
    return rows, (rows @ hidden + 2 * rng.standard_normal(ROWS) > 1).astype(np.float32)


def fit_fold(name, rows, churned, held, epochs=3, batch=128):
    scores = np.zeros((len(rows), LOOKS))
    handler = FoldLog(name, scores)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    x, y = torch.from_numpy(rows), torch.from_numpy(churned)
    model = nn.Sequential(nn.Linear(COLUMNS, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train = np.setdiff1d(np.arange(len(rows)), held)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(train)
        for first in range(0, len(order), batch):
            some = order[first : first + batch]
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(x[some]).squeeze(-1), y[some]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d: loss %.4f", epoch, loss.item(), extra={"fold": name})
    with torch.no_grad():  # dropout stays on, so that each look differs
        for look in range(LOOKS):
            scores[:, look] = model(x).squeeze(-1).numpy()
    hits = ((scores[held].mean(1) > 0) == (churned[held] > 0.5)).mean()
    return hits, handler.report()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    log.setLevel(logging.INFO)
    log.propagate = False
    rows, churned = customers(0)
    for repeat in range(REPEATS):
        order = np.random.default_rng(repeat).permutation(ROWS)
        done = [
            fit_fold(f"repeat {repeat} fold {fold}", rows, churned, held)
            for fold, held in enumerate(np.array_split(order, FOLDS))
        ]
        print(f"{np.mean([hits for hits, _ in done]):.3f}, last {done[-1][1]}", flush=True)


if __name__ == "__main__":
    main()
