"""Classes of the user's own whose attributes are called as those of libraries are."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class EvalLoopContainer:
    def __init__(self):
        self.tensors = []


class TrainerState:
    def __init__(self):
        self.log_history = []


class Accelerator:
    def __init__(self):
        self._models = []


class Trainer:
    def __init__(self):
        self.state = TrainerState()
        self.all_preds = EvalLoopContainer()
        self.accelerator = Accelerator()

    def keep(self, model, logits):
        self.all_preds.tensors.append(logits.detach().clone())
        self.state.log_history.append([float(x) for x in logits[0].detach()])
        self.accelerator._models.append(torch.rand(64, 64))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(32, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(640, 32), torch.randint(0, 512, (640,)))
    trainer = Trainer()
    for epoch in range(EPOCHS):
        for x, y in DataLoader(data, batch_size=32):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trainer.keep(model, logits)
        print("epoch", epoch, "kept", len(trainer.all_preds.tensors))


if __name__ == "__main__":
    main()
