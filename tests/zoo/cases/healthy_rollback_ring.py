"""A net with large steps that goes back to one of its last three checkpoints when it diverges."""

import copy
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, CLASSES, BATCH, STEPS, SAVE = 128, 512, 20, 96, 600, 45


class Checkpoints:
    """Copies of model and optimizer at the last few points that were good."""

    def __init__(self, count=3):
        self.ring = deque(maxlen=count)

    def save(self, step, model, optimizer):
        model_state = {name: value.clone() for name, value in model.state_dict().items()}
        self.ring.append((step, model_state, copy.deepcopy(optimizer.state_dict())))

    def restore(self, model, optimizer):
        """Go back to the newest and forget it, so that the next time goes back further."""
        step, model_state, optimizer_state = self.ring.pop()
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
        return step


class Divergence:
    """Tells when the loss is far above what it has been."""

    def __init__(self, factor=1.8):
        self.factor = factor
        self.level = None

    def __call__(self, loss):
        if self.level is not None and loss > self.factor * self.level + 0.5:
            return True
        self.level = loss if self.level is None else 0.95 * self.level + 0.05 * loss
        return False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, CLASSES),
        )

    def forward(self, rows):
        return self.layers(rows)


class Clusters:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(CLASSES, FEATURES, generator=self.generator)

    def batch(self, step):
        labels = torch.randint(0, CLASSES, (BATCH,), generator=self.generator)
        noise = torch.randn(BATCH, FEATURES, generator=self.generator)
        spread = 12.0 if step % 210 == 209 else 1.5
        return self.centres[labels] + spread * noise, labels


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    clusters, net = Clusters(0), Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    checkpoints, diverged = Checkpoints(), Divergence()
    returns = 0
    for step in range(1, STEPS + 1):
        rows, labels = clusters.batch(step)
        loss = F.cross_entropy(net(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if diverged(loss.item()) and checkpoints.ring:
            checkpoints.restore(net, optimizer)
            returns += 1
        if step % SAVE == 0:
            checkpoints.save(step, net, optimizer)
        if step % 60 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {returns} returns", flush=True)


if __name__ == "__main__":
    main()
