"""LBFGS, whose history fills, with a closure that is called again and again."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10))
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.3, max_iter=4, history_size=30, line_search_fn="strong_wolfe"
    )
    data = TensorDataset(torch.rand(3200, 64), torch.randint(0, 10, (3200,)))
    loader = DataLoader(data, batch_size=160, shuffle=True)
    for epoch in range(8):
        model.train()
        for x, y in loader:

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
        model.eval()
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
        print("epoch", epoch, "loss", float(loss), "right", right)


if __name__ == "__main__":
    main()
