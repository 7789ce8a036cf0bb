"""Checkpointed blocks under autocast to bfloat16, accumulated gradients, anomalies looked for."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(64, 256)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 4, 512, batch_first=True) for _ in range(3)
        )
        self.rest = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
        self.leave = nn.Linear(256, 10)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        x = checkpoint_sequential(self.rest, 2, x, use_reentrant=True)
        return self.leave(x.mean(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Deep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.rand(320, 16, 64), torch.randint(0, 10, (320,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    for epoch in range(6):
        model.train()
        with torch.autograd.set_detect_anomaly(epoch < 2):
            for index, (x, y) in enumerate(loader):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(x), y) / 2
                loss.backward()
                if index % 2:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=epoch % 2 == 0)
        model.eval()
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
        print("epoch", epoch, "loss", loss.item(), "right", right)


if __name__ == "__main__":
    main()
