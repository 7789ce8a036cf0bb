"""A trainer of pytorch-metric-learning, with a miner and a memory of embeddings that fills."""

import torch
from pytorch_metric_learning import losses, miners, samplers, trainers
from torch import nn
from torch.utils.data import TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trunk = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))
    embedder = nn.Linear(128, 64)
    labels = torch.arange(1600) % 20
    data = TensorDataset(torch.rand(1600, 64) + labels[:, None] / 20, labels)
    memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), 64, memory_size=1024)
    models = {"trunk": trunk, "embedder": embedder}

    def validate(trainer):
        trunk.eval()
        with torch.no_grad():
            spread = embedder(trunk(data.tensors[0])).std(0).mean()
        print("epoch", trainer.epoch, "spread", float(spread))

    trainers.MetricLossOnly(
        models=models,
        optimizers={
            f"{name}_optimizer": torch.optim.Adam(model.parameters(), lr=1e-3)
            for name, model in models.items()
        },
        batch_size=32,
        loss_funcs={"metric_loss": memory},
        mining_funcs={"tuple_miner": miners.MultiSimilarityMiner()},
        dataset=data,
        sampler=samplers.MPerClassSampler(labels, m=4, length_before_new_iter=1600),
        dataloader_num_workers=0,
        end_of_epoch_hook=validate,
    ).train(num_epochs=8)


if __name__ == "__main__":
    main()
