"""Probes with hooks that refer back to them are made for each epoch: circles of Python alone."""

import torch
from torch import nn

EPOCHS = 8


class Probe:
    """Notes how strong the activations of a block are, and refers to all there is around it."""

    def __init__(self, block):
        self.block, self.seen = block, torch.zeros(512, 256)
        self.handle = block.register_forward_hook(self.note)
        block.probe = self

    def note(self, module, inputs, output):
        self.seen[: len(output)].copy_(output.detach())
        output.register_hook(lambda grad: grad.clamp(-self.limit(), self.limit()))

    def limit(self):
        return 1.0 + float(self.seen.std())


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    head = nn.Linear(256, 10)
    x, y = torch.randn(1600, 64), torch.randint(0, 10, (1600,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=80)
    for epoch in range(EPOCHS):
        block = nn.Sequential(nn.Linear(64, 256), nn.Tanh())  # the probed part begins anew
        probe = Probe(block)
        optimizer = torch.optim.SGD([*block.parameters(), *head.parameters()], lr=0.05)
        for features, target in loader:
            loss = nn.functional.cross_entropy(head(block(features)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 3), round(probe.limit(), 2), flush=True)


main()
