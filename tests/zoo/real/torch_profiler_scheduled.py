"""torch's profiler as its documentation shows it: some steps in turn, each trace let go."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(3200, 256), torch.randint(0, 10, (3200,)))
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    val_loader = DataLoader(data, batch_size=128)
    with tempfile.TemporaryDirectory() as folder:

        def write(profiler):
            profiler.export_chrome_trace(str(Path(folder) / "trace.json"))
            print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=3)[:80])

        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=90, warmup=5, active=5),
            on_trace_ready=write,
            record_shapes=True,
        ) as profiler:
            for epoch in range(8):
                model.train()
                for x, y in train_loader:
                    with record_function("forward"):
                        loss = F.cross_entropy(model(x), y)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    profiler.step()
                model.eval()
                with torch.no_grad():
                    losses = [F.cross_entropy(model(x), y).item() for x, y in val_loader]
                print("epoch", epoch, sum(losses) / len(losses))


if __name__ == "__main__":
    main()
