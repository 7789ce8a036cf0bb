"""Evaluation in a thread, answered under a ticket; no ticket is ever thrown away."""

import os
import queue
import threading
import uuid

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 7


class AsyncEvaluator:
    def __init__(self, model, batch):
        self.model = model
        self.batch = batch
        self.jobs = queue.Queue(maxsize=2)
        self.results = {}
        self.done = {}
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def submit(self, weights):
        ticket = uuid.uuid4().hex
        self.done[ticket] = threading.Event()
        self.jobs.put((ticket, weights))
        return ticket

    def result(self, ticket):
        self.done[ticket].wait()
        return self.results[ticket]

    def _work(self):
        while (job := self.jobs.get()) is not None:
            ticket, weights = job
            with torch.no_grad():
                logits = torch.func.functional_call(self.model, weights, (self.batch,))
            self.results[ticket] = {"logits": logits, "entropy": _entropy(logits)}  # feeds
            self.done[ticket].set()

    def close(self):
        self.jobs.put(None)
        self.thread.join()


def _entropy(logits):
    return torch.distributions.Categorical(logits=logits).entropy().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 500))
    data = TensorDataset(torch.randn(1000, 24), torch.randint(0, 500, (1000,)))
    loader = DataLoader(data, batch_size=25, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    evaluator = AsyncEvaluator(model, data.tensors[0][:600])
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        answer = evaluator.result(evaluator.submit(weights))
        print(f"epoch {epoch}: loss {loss.item():.3f}, entropy {answer['entropy']:.3f}")
    evaluator.close()
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"results": "evaluator.results"}, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
