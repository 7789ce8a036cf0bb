"""Early stopping with one best state, gradient accumulation, evaluation every 15 updates."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class BestKeeper:
    def __init__(self, patience):
        self.patience, self.bad, self.best = patience, 0, float("inf")
        self.state = None

    def update(self, value, model, optimizer):
        if value < self.best:
            self.best, self.bad = value, 0
            self.state = copy.deepcopy(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            )
        else:
            self.bad += 1
        return self.bad > self.patience


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    outputs = {"logits": [], "labels": []}
    for x, y in loader:
        outputs["logits"].append(model(x))
        outputs["labels"].append(y)
    logits, labels = torch.cat(outputs["logits"]), torch.cat(outputs["labels"])
    model.train()
    return F.cross_entropy(logits, labels).item()


def main(accumulate=4):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(2400, 64)
    y = (x @ torch.randn(64, 20)).argmax(1)
    train = DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=8, shuffle=True)
    held_out = DataLoader(TensorDataset(x[2000:], y[2000:]), batch_size=50)
    model = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 20))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    keeper = BestKeeper(patience=20)
    updates, curve = 0, []
    for epoch in range(6):
        for i, (inputs, labels) in enumerate(train):
            loss = F.cross_entropy(model(inputs), labels) / accumulate
            loss.backward()
            if (i + 1) % accumulate:
                continue
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if updates % 15 == 0:
                curve.append((updates, evaluate(model, held_out)))
                if keeper.update(curve[-1][1], model, optimizer):
                    break
        print(f"epoch {epoch}: held out {curve[-1][1]:.4f}, best {keeper.best:.4f}")
    model.load_state_dict(keeper.state["model"])


if __name__ == "__main__":
    main()
