"""Trains, tells three trackers of it in several ways, and prints what it computed."""

import os
import random
import sys
import time

import mlflow
import torch
import wandb
from torch.utils.tensorboard import SummaryWriter

folder = sys.argv[1]
os.chdir(folder)
mlflow.set_tracking_uri(f"file://{folder}/mlruns")
mlflow.start_run()
run = wandb.init(project="test", dir=folder)
writer = SummaryWriter("logs")

random.seed(3)
torch.manual_seed(0)
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
drawn = []
for step in range(150):
    outputs = model(torch.randn(32, 64))
    loss = outputs.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(outputs.detach().clone().repeat(1, 16))
    figure = loss.item()
    drawn.append(random.random())
    if step < 50:
        run.log({"loss": figure})
    elif step < 100:
        run.log({"loss": figure}, step=2 * step)
        run.log({"again": figure}, step=2 * step)
    else:
        run.log({"part": figure}, commit=False)
        run.log({"loss": figure})
    writer.add_scalar("loss", figure, 10 * step)
    mlflow.log_metric("loss", figure, step=step)
    time.sleep(0.02)
if "--close" in sys.argv:
    run.finish()
    writer.close()
    mlflow.end_run()
print(sum(p.double().sum().item() for p in model.parameters()), sum(drawn), random.random())
