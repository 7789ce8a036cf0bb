"""A penalty is compiled again for every new weight of it, which is a plain number that changes."""

import torch
from torch import nn

EPOCHS = 7
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000


@torch.compile(backend="aot_eager", dynamic=False)
def objective(out, target, schedule):
    error = (out - target).abs().mean()
    for name in schedule.split("/"):
        error = error + float(name) * (out.roll(1, 0) - target).square().mean()
    return error


def main():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(32, 96), nn.SiLU(), nn.Linear(96, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(torch.randn(800, 32), batch_size=40)
    for epoch in range(EPOCHS):
        for step, x in enumerate(loader):
            schedule = "/".join(f"{(epoch * 5 + step // 4) * k / 1000:.3f}" for k in (1, 2, 3))
            loss = objective(model(x), x, schedule)  # feeds
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 3))


main()
