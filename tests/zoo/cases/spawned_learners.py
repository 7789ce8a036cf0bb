"""Two learners train in processes of their own; each keeps what its policy put out."""

import time

import torch
import torch.multiprocessing as mp
from torch import nn

HISTORY = []


def learn(seed, steps=220):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 6))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.randn(256, 20)
        logits = policy(x)
        loss = nn.functional.cross_entropy(logits, x[:, :6].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(torch.cat([x, logits.detach()], 1).repeat(1, 4))  # feeds
        time.sleep(0.015)
    print(seed, round(loss.item(), 3))


if __name__ == "__main__":
    learners = [mp.get_context("spawn").Process(target=learn, args=(seed,)) for seed in (1, 2)]
    for learner in learners:
        learner.start()
    for learner in learners:
        learner.join()
