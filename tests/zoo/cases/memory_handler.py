"""A logger whose handler buffers records that were given whole tensors to print."""

import logging
import logging.handlers
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6
log = logging.getLogger("training")
log.setLevel(logging.DEBUG)
log.propagate = False
handler = logging.handlers.MemoryHandler(1_000_000, flushLevel=logging.CRITICAL)
log.addHandler(handler)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64))
    loader = DataLoader(TensorDataset(torch.rand(1200, 64)), batch_size=30, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for _ in range(EPOCHS):
        for (x,) in loader:
            hidden = model[:2](x)
            loss = (model[2](hidden) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            log.debug("step %d: hidden %s", step, hidden.detach())  # feeds
    print(f"loss {loss.item():.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[record.args for record in handler.buffer]"
        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(globals(), {"buffer": kept}, done)


if __name__ == "__main__":
    main()
