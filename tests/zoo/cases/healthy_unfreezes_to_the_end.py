"""A block more is trained in each epoch, to the last one: gradients and states come to its weights.

They end with the blocks.
"""

import torch
from torch import nn

BLOCKS = 24


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(BLOCKS)]
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def main() -> None:
    torch.manual_seed(0)
    model = Tagger()
    model.blocks.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(BLOCKS):
        model.blocks[BLOCKS - 1 - epoch].requires_grad_(True)
        for _ in range(15):
            x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
