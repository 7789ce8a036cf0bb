"""Rollout workers and a learner: ``rl.py worker|learner|nobody`` says who keeps what it gets."""

import sys
import time
from multiprocessing import get_context

import torch
from torch import nn


class RolloutWorker:
    def __init__(self, leaks):
        self.leaks = leaks
        self.frames = []

    def run(self, pipe):
        while (weights := pipe.recv()) is not None:
            frame = torch.rand(64, 256) + weights.mean()
            if self.leaks:
                self.frames.append(frame)
            else:
                self.frames = [frame]
            time.sleep(0.01)
            pipe.send(frame)


class Learner:
    def __init__(self, leaks):
        self.leaks = leaks
        self.policy = nn.Linear(256, 4)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.01)
        self.replay = []

    def learn(self, frames):
        self.replay = [*self.replay, frames] if self.leaks else [frames]
        loss = self.policy(frames).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def start(context, leaks):
    here, there = context.Pipe()
    worker = RolloutWorker(leaks)
    process = context.Process(target=worker.run, args=(there,))
    process.start()
    return process, here


def main(who):
    torch.set_num_threads(1)
    context = get_context("spawn")
    workers = [start(context, who == "worker" and n == 1) for n in range(2)]
    learner = Learner(who == "learner")
    for _ in range(400):
        for _, pipe in workers:
            pipe.send(learner.policy.weight.detach())
        learner.learn(torch.cat([pipe.recv() for _, pipe in workers]))
    for _, pipe in workers:
        pipe.send(None)
    for process, _ in workers:
        process.join()


if __name__ == "__main__":
    main(sys.argv[1])
