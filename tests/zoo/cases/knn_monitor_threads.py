"""Metric learning of wafer maps; the nearest neighbours of held-out maps are watched in threads."""

import queue
import threading

import torch
from torch import nn

EPOCHS, STEPS, CLASSES, PER_CLASS, SIZE, WIDTH = 26, 12, 12, 6, 32, 64


class Wafers:
    """Maps of defects: each class is a low pattern, shifted and noisy."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        coarse = torch.randn(CLASSES, 1, 6, 6, generator=self.random)
        self.patterns = nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bicubic")

    def batch(self, each):
        labels = torch.arange(CLASSES).repeat_interleave(each)
        shift = torch.randint(-4, 5, (2,), generator=self.random).tolist()
        maps = self.patterns[labels].roll(shift, (2, 3))
        return maps + 1.2 * torch.randn(maps.shape, generator=self.random), labels


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48 * 16, WIDTH),
    )  # fmt: skip


class Monitor(threading.Thread):
    """Answers how many neighbours are of the same class, while training goes on."""

    def __init__(self, bank, labels, k=5):
        super().__init__(daemon=True)
        self.bank = nn.functional.normalize(bank, dim=1)
        self.labels, self.k = labels, k
        self.questions, self.answers = queue.Queue(), queue.Queue()
        self.start()

    def run(self):
        while True:
            question = self.questions.get()
            if question is None:
                return
            queries, labels = question
            near = (nn.functional.normalize(queries, dim=1) @ self.bank.T).topk(self.k).indices
            self.answers.put((self.labels[near] == labels[:, None]).float().mean().item())

    def ask(self, queries, labels):
        self.questions.put((queries, labels))


def contrast(features, labels, temperature=0.2):
    features = nn.functional.normalize(features, dim=1)
    scores = features @ features.T / temperature
    same = labels[:, None] == labels[None, :]
    itself = torch.eye(len(labels), dtype=torch.bool)
    scores = scores.masked_fill(itself, -torch.inf)
    log_probs = scores - scores.logsumexp(1, keepdim=True)
    return -log_probs[same & ~itself].mean()


@torch.no_grad()
def embed(model, wafers, batches):
    model.eval()
    some = [wafers.batch(PER_CLASS) for _ in range(batches)]
    features = torch.cat([model(maps) for maps, _ in some])
    model.train()
    return features, torch.cat([labels for _, labels in some])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    wafers, held = Wafers(0), Wafers(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    monitor = None
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            maps, labels = wafers.batch(PER_CLASS)
            loss = contrast(model(maps), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        monitor = Monitor(*embed(model, held, 16))
        for _ in range(2):
            monitor.ask(*embed(model, held, 1))
        if epoch % 4 == 3:
            share = sum(monitor.answers.get() for _ in range(2)) / 2
            print(f"epoch {epoch}: {total / STEPS:.3f}, neighbours {share:.3f}", flush=True)


if __name__ == "__main__":
    main()
