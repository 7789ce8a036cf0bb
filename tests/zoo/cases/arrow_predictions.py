"""Evaluation after each epoch of a credit model, whose predictions go to an Arrow table for audit."""

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, BATCH, EPOCHS, STEPS, CHECKS, ROWS = 40, 320, 256, 16, 24, 6, 2048


class CreditModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, WIDTH),
            nn.SELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.SELU(),
        )
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, rows):
        hidden = self.body(rows)
        return self.out(hidden).squeeze(-1), hidden


class AuditTrail:
    """Collects what the model said of whom; written as one file when the run ends."""

    schema = pa.schema(
        [
            ("epoch", pa.int32()),
            ("applicant", pa.string()),
            ("score", pa.float32()),
            ("reasons", pa.list_(pa.float32(), 16)),
        ]
    )

    def __init__(self):
        self.batches = []

    def add(self, epoch, applicants, scores, reasons):
        columns = [
            pa.array([epoch] * len(applicants), pa.int32()),
            pa.array(applicants),
            pa.array(scores.numpy()),
            pa.FixedSizeListArray.from_arrays(pa.array(reasons.flatten().numpy()), 16),
        ]
        self.batches.append(pa.record_batch(columns, schema=self.schema))

    def approved(self, epoch):
        """Return the share of applicants that an epoch's model would approve."""
        table = pa.Table.from_batches(self.batches, schema=self.schema)
        mine = table.filter(pc.field("epoch") == epoch)
        return pc.mean(pc.greater(mine["score"], 0.5).cast(pa.float32())).as_py()


class Applicants:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(FEATURES, generator=self.generator) / 6

    def draw(self, count):
        rows = torch.randn(count, FEATURES, generator=self.generator)
        odds = torch.sigmoid(rows @ self.weights + 0.3 * (rows[:, 0] * rows[:, 1]))
        return rows, torch.bernoulli(odds, generator=self.generator)


@torch.no_grad()
def evaluate(model, applicants, trail, epoch):
    right = 0.0
    for number in range(CHECKS):
        rows, label = applicants.draw(ROWS)
        logits, hidden = model(rows)
        names = [f"applicant-{number:02d}-{row:06d}" for row in range(ROWS)]
        trail.add(epoch, names, logits.sigmoid(), hidden[:, :16].contiguous())
        right += float(((logits > 0) == label.bool()).float().mean())
    return right / CHECKS


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, applicants, trail = CreditModel(), Applicants(1), AuditTrail()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            rows, label = applicants.draw(BATCH)
            loss = F.binary_cross_entropy_with_logits(model(rows)[0], label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = evaluate(model, applicants, trail, epoch)
        share = trail.approved(epoch)
        print(f"epoch {epoch}: accuracy {accuracy:.3f}, approved {share:.2f}", flush=True)


if __name__ == "__main__":
    main()
