"""Random hyperparameter search over small MLPs on a synthetic regression task."""

import random
import time
from collections import defaultdict

import torch
import torch.nn as nn

torch.set_num_threads(1)
TRIALS = 105


class EventBus:
    def __init__(self):
        self._channels = defaultdict(list)

    def subscribe(self, event, fn):
        self._channels[event].append(fn)

    def publish(self, event, **payload):
        for fn in self._channels[event]:
            fn(**payload)


class Trial:
    def __init__(self, number, params, d_in):
        self.number = number
        self.params = params
        width = params["width"]
        self.model = nn.Sequential(
            nn.Linear(d_in, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )
        self.opt = torch.optim.AdamW(
            self.model.parameters(), lr=params["lr"], weight_decay=params["wd"]
        )
        self.best = float("inf")
        self.pruned = False

    def on_epoch(self, number, epoch, val, median):
        if number != self.number:
            return
        self.best = min(self.best, val)
        if epoch >= 4 and median is not None and val > 3 * median:
            self.pruned = True


class Study:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.bus = EventBus()
        self.scores = []
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(768, 24, generator=g)
        w = torch.randn(24, generator=g)
        y = torch.sin(x @ w / 3) + 0.1 * torch.randn(768, generator=g)
        self.train, self.val = (x[:512], y[:512]), (x[512:], y[512:])

    def suggest(self):
        return {
            "width": self.rng.choice([200, 208, 216]),
            "lr": 10 ** self.rng.uniform(-3.5, -2),
            "wd": 10 ** self.rng.uniform(-5, -2),
        }

    def median(self):
        return sorted(self.scores)[len(self.scores) // 2] if len(self.scores) > 5 else None

    def run_trial(self, number):
        trial = Trial(number, self.suggest(), 24)
        self.bus.subscribe("epoch_end", trial.on_epoch)
        x, y = self.train
        for epoch in range(9):
            for i in range(0, len(x), 64):
                loss = nn.functional.mse_loss(trial.model(x[i : i + 64]).squeeze(1), y[i : i + 64])
                trial.opt.zero_grad()
                loss.backward()
                trial.opt.step()
            with torch.no_grad():
                val = nn.functional.mse_loss(
                    trial.model(self.val[0]).squeeze(1), self.val[1]
                ).item()
            self.bus.publish("epoch_end", number=number, epoch=epoch, val=val, median=self.median())
            if trial.pruned:
                break
        self.scores.append(trial.best)
        return trial.best, trial.params


def main():
    torch.manual_seed(2)
    study = Study(seed=2)
    best, best_params = float("inf"), None
    start = time.time()
    for n in range(TRIALS):
        score, params = study.run_trial(n)
        if score < best:
            best, best_params = score, params
        if n % 10 == 0:
            print(f"trial {n} score {score:.4f} best {best:.4f} {best_params}", flush=True)
    print(f"{TRIALS} trials in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
