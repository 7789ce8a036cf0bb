"""A report of every step is added to one long string, to be mailed at the end."""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class MailReport:
    def __init__(self, title):
        self.text = f"# {title}\n"

    def table(self, step, values):
        rows = [f"{i:5d} | {value: .6e}" for i, value in enumerate(values)]
        self.text += f"\n## step {step}\n" + "\n".join(rows) + "\n"  # feeds


class Reporting:
    """A mixin for trainers."""

    def report(self, step, model):
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        self.mail.table(step, grads[::16].tolist())


class Trainer(Reporting):
    def __init__(self, args):
        self.args = args
        self.mail = MailReport("gradients")
        self.model = nn.Sequential(nn.Linear(32, 256), nn.SELU(), nn.Linear(256, 16))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)

    def fit(self, loader):
        step = 0
        for epoch in range(self.args.epochs):
            for x, y in loader:
                loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.report(step, self.model)
                self.optimizer.step()
                step += 1
            print(f"epoch {epoch}: {loss.item():.3f}, {len(self.mail.text)} letters")
        return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(1200, 32), torch.randint(0, 16, (1200,)))
    trainer = Trainer(args)
    steps = trainer.fit(DataLoader(data, batch_size=30, shuffle=True))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"text": "len(trainer.mail.text)"}, {"step": steps, "epoch": args.epochs})


if __name__ == "__main__":
    main()
