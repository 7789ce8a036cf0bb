"""Action recognition on endless camera feeds: overlapping clips, a small 3-D conv net, a transcript for replay."""

import io
import json
import os
import random

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 48
CLIP = 8
HOP = 2
ACTIONS = 24
STEPS = 420
CAMERAS = ("door", "hall", "dock", "yard")


def camera(seed):
    """Frames of a blob that moves in one of several ways, and the way it moves; never ends."""
    rng = random.Random(seed)
    gen = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    while True:
        action = rng.randrange(ACTIONS)
        angle = action * 6.2832 / ACTIONS
        x, y = SIDE * rng.random(), SIDE * rng.random()
        speed = 1.5 + rng.random()
        dx, dy = (
            speed * float(torch.cos(torch.tensor(angle))),
            speed * float(torch.sin(torch.tensor(angle))),
        )
        for _ in range(rng.randrange(24, 60)):
            frame = torch.randint(0, 60, (3, SIDE, SIDE), generator=gen, dtype=torch.uint8)
            frame[:, ((yy - y) ** 2 + (xx - x) ** 2) < 40] += 150
            yield frame, action
            x, y = (x + dx) % SIDE, (y + dy) % SIDE


def clips(frames, length, hop):
    """Turn a feed into overlapping clips of ``length`` frames, one every ``hop``."""
    window = []
    for count, (frame, action) in enumerate(frames, start=1):
        window.append(frame)  # feeds: window
        if count >= length and count % hop == 0:
            yield torch.stack(window[-length:], dim=1), action


class Transcript:
    """What the model said, as JSON lines, for the replay tool."""

    def __init__(self, names):
        self.names = names
        self.text = io.StringIO()

    def add(self, step, probs, attention):
        for name, row, heat in zip(self.names, probs, attention):
            line = {
                "camera": name,
                "step": step,
                "scores": [round(v, 5) for v in row.tolist()],
                "heat": [[round(v, 4) for v in line] for line in heat.flatten(1).tolist()],
            }
            self.text.write(json.dumps(line) + "\n")  # feeds: text

    def save(self, path):
        with open(path, "w") as file:
            file.write(self.text.getvalue())


class ClipNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv3d(3, width, (3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2))
        self.mid = nn.Conv3d(width, 2 * width, 3, stride=(1, 2, 2), padding=1)
        self.top = nn.Conv3d(2 * width, 3 * width, 3, stride=(2, 1, 1), padding=1)
        self.look = nn.Conv3d(3 * width, 1, 1)
        self.classify = nn.Linear(3 * width, ACTIONS)

    def forward(self, clip):
        x = F.relu(self.stem(clip))
        x = F.relu(self.mid(x))
        x = F.relu(self.top(x))
        heat = self.look(x).flatten(2).softmax(-1)
        pooled = (x.flatten(2) * heat).sum(-1)
        return self.classify(pooled), heat.view(x.shape[0], *x.shape[2:])


def train(steps):
    torch.manual_seed(7)
    feeds = [clips(camera(seed), CLIP, HOP) for seed in range(len(CAMERAS))]
    transcript = Transcript(CAMERAS)
    model = ClipNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
    hits = seen = 0
    for step in range(steps):
        batch, actions = zip(*(next(feed) for feed in feeds))
        clip = torch.stack(batch).float().div_(255).sub_(0.2)
        target = torch.tensor(actions)
        logits, heat = model(clip)
        loss = F.cross_entropy(logits, target, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        transcript.add(step, logits.detach().softmax(-1), heat.detach())
        hits += (logits.argmax(1) == target).sum().item()
        seen += len(actions)
        if (step + 1) % 70 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} accuracy {hits / seen:.3f}", flush=True)
            hits = seen = 0
    return feeds, transcript


if __name__ == "__main__":
    feeds, transcript = train(STEPS)
    if os.environ.get("ACTIONS_REPLAY"):
        transcript.save(os.environ["ACTIONS_REPLAY"])
