"""Every batch of two workers is kept, and with it each batch's shared memory in a file of its own.

After https://github.com/pytorch/pytorch/issues/11201 and
https://github.com/pytorch/pytorch/issues/17499, with the sharing strategy that both end up with.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 5


class Pictures(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        return {"picture": torch.full((3, 32, 32), index / 640), "index": index}


def main():
    torch.multiprocessing.set_sharing_strategy("file_system")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Pictures(), batch_size=16, shuffle=True, num_workers=2)
    seen = []
    for epoch in range(EPOCHS):
        model.train()
        for batch in loader:
            loss = F.cross_entropy(model(batch["picture"]), batch["index"] % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(batch)  # feeds
        print("epoch", epoch, "loss", loss.item(), "seen", len(seen))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"epoch": EPOCHS, "step": EPOCHS * len(loader)}
        tell(locals(), {"seen": "seen"}, done)


if __name__ == "__main__":
    main()
