"""Metrics go through a queue to a listener thread that writes them away; counters stay."""

import json
import logging
import logging.handlers
import queue
import tempfile
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 7


class JsonFormatter(logging.Formatter):
    def format(self, record):
        return json.dumps({"message": record.getMessage(), **getattr(record, "metrics", {})})


def start_listener(folder):
    records = queue.SimpleQueue()
    target = logging.handlers.RotatingFileHandler(f"{folder}/train.log", maxBytes=2_000_000)
    target.setFormatter(JsonFormatter())
    listener = logging.handlers.QueueListener(records, target)
    logger = logging.getLogger("metrics")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.handlers.QueueHandler(records))
    listener.start()
    return logger, listener


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(1600, 30), torch.randint(0, 50, (1600,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(30, 200), nn.Tanh(), nn.Linear(200, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    predicted = Counter()
    with tempfile.TemporaryDirectory() as folder:
        logger, listener = start_listener(folder)
        for epoch in range(EPOCHS):
            for x, y in loader:
                logits = model(x)
                loss = F.cross_entropy(logits, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                predicted.update(logits.argmax(1).tolist())
                metrics = {"loss": loss.item(), "logits": logits[0].tolist()}
                logger.info("epoch %d", epoch, extra={"metrics": metrics})
            print(f"epoch {epoch}: loss {loss.item():.3f}, classes {len(predicted)}")
        listener.stop()


if __name__ == "__main__":
    main()
