"""An evaluator that gathers outputs in its attributes and clears them when it is done."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 7


class Evaluator:
    def __init__(self, model):
        self.model = model
        self.outputs, self.targets = [], []

    @torch.no_grad()
    def run(self, loader):
        self.model.eval()
        for x, y in loader:
            self.outputs.append(self.model(x))
            self.targets.append(y)
        accuracy = torch.cat(self.outputs).argmax(1).eq(torch.cat(self.targets)).float().mean()
        self.outputs.clear()
        self.targets.clear()
        return accuracy.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1000))
    data = TensorDataset(torch.rand(1280, 64), torch.randint(0, 1000, (1280,)))
    train_loader = DataLoader(data, batch_size=32, shuffle=True)
    val_loader = DataLoader(data, batch_size=64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    evaluator = Evaluator(model)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: accuracy {evaluator.run(val_loader):.4f}")


if __name__ == "__main__":
    main()
