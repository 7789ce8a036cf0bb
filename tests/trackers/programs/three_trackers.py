"""Trains, tells the trackers that are named of it in several ways, and prints what it computed."""

import os
import random
import sys
import time

import torch

folder, *trackers = sys.argv[1:]
os.chdir(folder)
if "mlflow" in trackers:
    import mlflow

    mlflow.set_tracking_uri(f"file://{folder}/mlruns")
    mlflow.start_run()
if "wandb" in trackers:
    import wandb

    run = wandb.init(project="test", dir=folder)
if "tensorboard" in trackers:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("logs")


def log_to_wandb(step, figure):
    if step < 50:
        run.log({"loss": figure})
    elif step < 100:
        run.log({"loss": figure}, step=2 * step)
        run.log({"again": figure}, step=2 * step)
    else:
        run.log({"part": figure}, commit=False)
        run.log({"loss": figure})


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
    if "wandb" in trackers:
        log_to_wandb(step, figure)
    if "tensorboard" in trackers:
        writer.add_scalar("loss", figure, 10 * step)
    if "mlflow" in trackers:
        mlflow.log_metric("loss", figure, step=step)
    time.sleep(0.02)
if "--close" in trackers:
    if "wandb" in trackers:
        run.finish()
    if "tensorboard" in trackers:
        writer.close()
    if "mlflow" in trackers:
        mlflow.end_run()
print(sum(p.double().sum().item() for p in model.parameters()), sum(drawn), random.random())
