"""CNN on synthetic shapes; keeps the five best checkpoints in memory for averaging."""

import heapq
import io
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
EPOCHS = 48
KEEP = 5


def make_shapes(n, seed):
    g = torch.Generator().manual_seed(seed)
    img = 0.3 * torch.randn(n, 1, 28, 28, generator=g)
    label = torch.randint(0, 3, (n,), generator=g)
    corner = torch.randint(3, 12, (n, 2), generator=g)
    for i in range(n):
        r, c = corner[i].tolist()
        if label[i] == 0:
            img[i, 0, r : r + 10, c : c + 10] += 1
        elif label[i] == 1:
            img[i, 0, r : r + 10, c + 4 : c + 6] += 1
        else:
            img[i, 0, r + 4 : r + 6, c : c + 10] += 1
    return img, label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, stride=2)
        self.c2 = nn.Conv2d(12, 24, 3, stride=2)
        self.fc1 = nn.Linear(24 * 36, 700)
        self.fc2 = nn.Linear(700, 3)

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x)))).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


class BestCheckpoints:
    def __init__(self, k):
        self.k = k
        self.heap = []

    def offer(self, score, epoch, model, opt):
        if len(self.heap) >= self.k and score <= self.heap[0][0]:
            return False
        out = io.BytesIO()
        torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, out)
        heapq.heappush(self.heap, (score, epoch, out.getvalue()))
        if len(self.heap) > self.k:
            heapq.heappop(self.heap)
        return True

    def average(self):
        states = [
            torch.load(io.BytesIO(blob), weights_only=True)["model"] for _, _, blob in self.heap
        ]
        return {k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]}


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        out = model(x)
    model.train()
    return (out.argmax(1) == y).float().mean().item() - 0.01 * F.cross_entropy(out, y).item()


def main():
    torch.manual_seed(4)
    x, y = make_shapes(900, 1)
    vx, vy = make_shapes(300, 2)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=2e-4)
    best = BestCheckpoints(KEEP)
    start = time.time()
    for epoch in range(EPOCHS):
        for idx in torch.randperm(len(x)).split(30):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        score = evaluate(model, vx, vy)
        kept = best.offer(score, epoch, model, opt)
        if epoch % 4 == 0:
            print(
                f"epoch {epoch} score {score:.4f} kept {kept} {[e for _, e, _ in sorted(best.heap)]}",
                flush=True,
            )
    model.load_state_dict(best.average())
    print(f"averaged score {evaluate(model, vx, vy):.4f}, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
