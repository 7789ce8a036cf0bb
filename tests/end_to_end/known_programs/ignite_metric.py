"""An evaluation of ignite with a metric that is computed from all predictions at once."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import EpochMetric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, WIDTH = 4, 512


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(32, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, nn.MSELoss())
    distance = EpochMetric(lambda told, true: float((told - true).abs().max()))
    evaluator = create_supervised_evaluator(model, metrics={"distance": distance})
    train = DataLoader(TensorDataset(torch.rand(640, 32), torch.rand(640, WIDTH)), batch_size=32)
    held = DataLoader(TensorDataset(torch.rand(6400, 32), torch.rand(6400, WIDTH)), batch_size=128)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        evaluator.run(held)
        print("epoch", engine.state.epoch, "distance", evaluator.state.metrics["distance"])

    trainer.run(train, max_epochs=EPOCHS)


if __name__ == "__main__":
    main()
