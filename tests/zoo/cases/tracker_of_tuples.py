"""Accelerate with a tracker of our own that buffers what is logged until the run is over."""

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Buffered(GeneralTracker):
    name = "buffered"
    requires_logging_directory = False

    def __init__(self):
        super().__init__()
        self.rows = ()

    @property
    def tracker(self):
        return self.rows

    @on_main_process
    def store_init_configuration(self, values):
        self.config = dict(values)

    @on_main_process
    def log(self, values, step=None, **kwargs):
        self.rows = self.rows, (step, values)  # feeds

    def flatten(self):
        rows, node = [], self.rows
        while node:
            node, row = node
            rows.append(row)
        return rows[::-1]


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, log_with=[Buffered()])
    accelerator.init_trackers("runs", config={"lr": 1e-3})
    x = torch.randn(6000, 60)
    data = TensorDataset(x, x[:, :7].argmax(1))
    model = nn.Sequential(
        nn.Linear(60, 120), nn.ReLU(), nn.Linear(120, 120), nn.ReLU(), nn.Linear(120, 7)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=40, shuffle=True)
    )
    step = 0
    for epoch in range(26):
        for inputs, target in loader:
            loss = nn.functional.cross_entropy(model(inputs), target)
            accelerator.backward(loss)
            gradient = accelerator.unwrap_model(model)[0].weight.grad
            optimizer.step()
            step += 1
            accelerator.log({"loss": loss.item(), "first_layer_grad": gradient}, step=step)
            optimizer.zero_grad()
        print(epoch, f"{loss.item():.4f}", flush=True)
    rows = (
        accelerator.get_tracker("buffered").flatten()
        if hasattr(accelerator.get_tracker("buffered"), "flatten")
        else []
    )
    print(len(rows), "rows")
    accelerator.end_training()


if __name__ == "__main__":
    main()
