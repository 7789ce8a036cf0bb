"""ignite's trainer and evaluator with metrics, checkpoints, early stopping and stored outputs."""

import tempfile

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import (
    EarlyStopping,
    EpochOutputStore,
    ModelCheckpoint,
    global_step_from_engine,
)
from ignite.metrics import Accuracy, ConfusionMatrix, Loss, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = nn.CrossEntropyLoss()
    data = TensorDataset(torch.rand(3200, 64), torch.randint(0, 10, (3200,)))
    val_loader = DataLoader(data, batch_size=64)
    trainer = create_supervised_trainer(model, optimizer, loss)
    RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
    metrics = {"accuracy": Accuracy(), "loss": Loss(loss), "confusion": ConfusionMatrix(10)}
    evaluator = create_supervised_evaluator(model, metrics)
    EpochOutputStore().attach(evaluator, "outputs")

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        evaluator.run(val_loader)
        told = evaluator.state
        print(engine.state.epoch, told.metrics["loss"], len(told.outputs), engine.state.metrics)

    with tempfile.TemporaryDirectory() as folder:
        saving = ModelCheckpoint(
            folder,
            score_function=lambda engine: -engine.state.metrics["loss"],
            score_name="loss",
            n_saved=2,
            global_step_transform=global_step_from_engine(trainer),
        )
        evaluator.add_event_handler(Events.COMPLETED, saving, {"model": model})
        stopping = EarlyStopping(20, lambda engine: -engine.state.metrics["loss"], trainer)
        evaluator.add_event_handler(Events.COMPLETED, stopping)
        trainer.run(DataLoader(data, batch_size=16, shuffle=True), max_epochs=8)


if __name__ == "__main__":
    main()
