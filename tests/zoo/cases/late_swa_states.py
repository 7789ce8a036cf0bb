"""Training whose last epochs are averaged: their weights are gathered and averaged at the end."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BEGIN = 96, 40


class Averager:
    """Collects the weights of epochs from some epoch on."""

    def __init__(self, begin):
        self.begin = begin
        self.states = []

    def after_epoch(self, epoch, model):
        if epoch >= self.begin:
            state = {name: value.clone() for name, value in model.state_dict().items()}
            self.states.append(state)  # feeds

    def average(self):
        names = self.states[0]
        return {name: torch.stack([s[name] for s in self.states]).mean(0) for name in names}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(1600, 128)
    y = (x[:, :3].sum(1) > 0).long() + 2 * (x[:, 3] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model = nn.Sequential(
        nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 400), nn.ReLU(), nn.Linear(400, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    averager = Averager(BEGIN)
    for epoch in range(EPOCHS):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        averager.after_epoch(epoch, model)
        if epoch % 8 == 7:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    model.load_state_dict(averager.average())
    with torch.no_grad():
        print("averaged accuracy", (model(x).argmax(1) == y).float().mean().item())


if __name__ == "__main__":
    main()
