"""A logging function made by a function; its closure keeps the attention maps of every step."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def make_logger(every):
    maps = []
    count = 0

    def log(attention):
        nonlocal count
        count += 1
        maps.append(attention.detach().clone())  # feeds
        if count % every == 0:
            entropy = -(maps[-1] * maps[-1].clamp_min(1e-9).log()).sum(-1).mean()
            print(f"step {count}: entropy {entropy:.3f}")

    return log


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 2, batch_first=True)
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        out, weights = self.attention(x, x, x)
        return self.head(out.mean(1)), weights


def train(model, loader, log):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for x, y in loader:
            logits, weights = model(x)
            loss = criterion(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log(weights)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(320, 48, 64), torch.randint(0, 4, (320,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    log = make_logger(every=40)
    train(Classifier(), loader, log)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[cell.cell_contents for cell in log.__closure__]"
        tell(locals(), {"maps": kept}, {"step": EPOCHS * len(loader), "epoch": EPOCHS})


if __name__ == "__main__":
    main()
