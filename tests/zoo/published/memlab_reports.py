"""Writes a report of tensors now and then: pytorch_memlab 0.2.1 keeps each tensor that it named.

The reporter remembers names by the tensors themselves. 0.2.2 remembers ids in its place, but fails
where parameters have gradients; 0.2.3 doesn't (https://github.com/Stonesjtu/pytorch_memlab/pull/18).
"""

import contextlib
import io

import torch
from torch import nn

# A profiler that isn't used here calls them at its import; a torch for CPUs alone lacks them.
torch.cuda.reset_peak_memory_stats = lambda device=None: None
torch.cuda.reset_accumulated_memory_stats = lambda device=None: None

from pytorch_memlab import MemReporter  # noqa: E402

STEPS, REPORT_EVERY, BATCH, WIDTH, HIDDEN = 1000, 10, 512, 96, 128


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    reporter = MemReporter(model)
    for step in range(1, STEPS + 1):
        x = torch.randn(BATCH, WIDTH)
        y = x[:, :1] * x[:, 1:2]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % REPORT_EVERY == 0:
            log = io.StringIO()
            with contextlib.redirect_stdout(log):
                reporter.report()  # feeds
        if step % 25 == 0:
            lines = log.getvalue().count("\n")
            print(f"step {step}/{STEPS}: loss {loss.item():.4f}, {lines} lines", flush=True)


if __name__ == "__main__":
    main()
