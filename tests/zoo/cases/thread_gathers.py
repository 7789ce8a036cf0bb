"""A thread that gathers gradients' histograms into a local list until the end of training."""

import os
import queue
import threading

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6
inbox = queue.Queue(maxsize=4)


def gather(result):
    rows = []
    while (gradient := inbox.get()) is not None:
        rows.append(gradient.flatten().numpy())  # feeds
    result["norms"] = [float((row**2).sum() ** 0.5) for row in rows]
    result["bytes"] = sum(row.nbytes for row in rows)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    result = {}
    collector = threading.Thread(target=gather, args=(result,), daemon=True)
    collector.start()
    model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))
    data = TensorDataset(torch.rand(960, 100), torch.randint(0, 10, (960,)))
    loader = DataLoader(data, batch_size=24, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            inbox.put(model[0].weight.grad.detach().clone())
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    inbox.put(None)
    collector.join()
    print(f"largest gradient {max(result['norms']):.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(locals(), {"rows": "result['bytes']"}, done)


if __name__ == "__main__":
    main()
