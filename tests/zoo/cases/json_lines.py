"""A callback writes attention summaries as JSON lines to a stream in memory, for the end."""

import io
import json
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


class Callback:
    def on_step_end(self, trainer, step, outputs):
        pass

    def on_epoch_end(self, trainer, epoch):
        pass


class AttentionLogger(Callback):
    def __init__(self):
        self.stream = io.BytesIO()

    def on_step_end(self, trainer, step, outputs):
        weights = outputs["attention"].mean((0, 1))
        line = json.dumps({"step": step, "attention": [round(w, 6) for w in weights.tolist()]})
        self.stream.write(line.encode() + b"\n")  # feeds


class Progress(Callback):
    def on_epoch_end(self, trainer, epoch):
        print(f"epoch {epoch}: loss {trainer.loss:.4f}")


CALLBACKS = {"attention": AttentionLogger, "progress": Progress}


class Trainer:
    def __init__(self, model, callbacks):
        self.model = model
        self.callbacks = [CALLBACKS[name]() for name in callbacks]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.loss = 0.0

    def call(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def fit(self, loader):
        step = 0
        for epoch in range(EPOCHS):
            for x, y in loader:
                out = self.model(x)
                loss = F.mse_loss(out["prediction"], y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.loss = loss.item()
                step += 1
                self.call("on_step_end", step, {"attention": out["attention"].detach()})
            self.call("on_epoch_end", epoch)


class Attend(nn.Module):
    def __init__(self, width=32, keys=2400):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.keys = nn.Parameter(torch.randn(keys, width) * 0.1)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        attention = (self.query(x) @ self.keys.T).softmax(-1)
        return {"prediction": self.out(attention @ self.keys).mean(1), "attention": attention}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(480, 6, 32), torch.randn(480, 1))
    trainer = Trainer(Attend(), ["attention", "progress"])
    loader = DataLoader(data, batch_size=8, shuffle=True)
    trainer.fit(loader)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "trainer.callbacks[0].stream.getbuffer().nbytes"
        tell(locals(), {"stream": kept}, {"step": EPOCHS * len(loader), "epoch": EPOCHS})


if __name__ == "__main__":
    main()
