"""Scalars, histograms and pictures written to TensorBoard at every few steps, as torch has it."""

import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(3200, 256), torch.randint(0, 10, (3200,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    step = 0
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        writer.add_graph(model, torch.rand(1, 256))
        for epoch in range(8):
            model.train()
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                writer.add_scalar("loss", loss, step)
            model.eval()
            with torch.no_grad():
                outputs = torch.cat([model(x) for x, _ in loader])
            for name, parameter in model.named_parameters():
                writer.add_histogram(name, parameter, epoch)
            writer.add_image("outputs", outputs[:100].softmax(1)[None], epoch)
            writer.add_pr_curve("first", data.tensors[1] == 0, outputs.softmax(1)[:, 0], epoch)
            writer.add_embedding(outputs[:50], global_step=epoch)
            print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
