"""Trains a re-identification embedding online, on the tracks which a ByteTrack-like tracker builds on simulated video."""

import enum
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

CROP = (48, 24)
EMBED = 256
FRAMES = 900


class State(enum.Enum):
    NEW = 0
    TRACKED = 1
    LOST = 2
    REMOVED = 3


class Observed:
    """Attribute whose assignments are noted, so that a run can be drawn afterwards."""

    def __init__(self):
        self.seen = []

    def __set_name__(self, owner, name):
        self.slot = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else obj.__dict__.get(self.slot)

    def __set__(self, obj, value):
        obj.__dict__[self.slot] = value
        self.seen.append((obj.track_id, value.copy()))  # feeds: observed


class BaseTrack:
    _count = 0
    feature = Observed()

    def __init__(self, frame):
        BaseTrack._count += 1
        self.track_id = BaseTrack._count
        self.state, self.start_frame, self.last_frame = State.NEW, frame, frame

    def mark(self, state):
        self.state = state


class STrack(BaseTrack):
    def __init__(self, frame, box, crop, feature):
        super().__init__(frame)
        self.box = box.copy()
        self.velocity = np.zeros(2)
        self.templates = deque(maxlen=5)
        self.feature = feature.copy()
        self.templates.append(crop.clone())

    def predict(self):
        return self.box[:2] + self.velocity

    def update(self, frame, box, crop, feature):
        gap = max(frame - self.last_frame, 1)
        self.velocity = 0.7 * self.velocity + 0.3 * (box[:2] - self.box[:2]) / gap
        self.box, self.last_frame = box.copy(), frame
        mixed = 0.8 * self.feature + 0.2 * feature
        self.feature = (mixed / np.linalg.norm(mixed)).astype(np.float32)
        self.templates.append(crop.clone())
        self.mark(State.TRACKED)


class OnlineTracker:
    def __init__(self, patience=5):
        self.patience = patience
        self.tracked, self.lost, self.removed = [], [], []

    def step(self, frame, boxes, crops, features):
        candidates = self.tracked + self.lost
        free = set(range(len(boxes)))
        found, missed = [], []
        if candidates and len(boxes):
            spots = np.stack([t.predict() for t in candidates])
            far = np.linalg.norm(spots[:, None] - boxes[None, :, :2], axis=2)
            alike = np.stack([t.feature for t in candidates]) @ features.T
            cost = far / 40.0 + 0.5 * (1 - alike)
            for row in np.argsort(cost.min(axis=1)):
                options = [c for c in np.argsort(cost[row]) if c in free and cost[row, c] < 1.0]
                if options:
                    free.discard(options[0])
                    candidates[row].update(
                        frame, boxes[options[0]], crops[options[0]], features[options[0]]
                    )
                    found.append(candidates[row])
                else:
                    missed.append(candidates[row])
        else:
            missed = candidates
        still_lost, gone = [], []
        for track in missed:
            expired = frame - track.last_frame > self.patience
            track.mark(State.REMOVED if expired else State.LOST)
            (gone if expired else still_lost).append(track)
        newborn = [STrack(frame, boxes[i], crops[i], features[i]) for i in sorted(free)]
        self.tracked, self.lost = found + newborn, still_lost
        self.removed.extend(gone)  # feeds: removed
        return len(gone)


class Street:
    """People with coloured clothes who walk through the picture for a while."""

    def __init__(self, people, seed):
        self.rng = np.random.default_rng(seed)
        self.people = [self.newcomer() for _ in range(people)]

    def newcomer(self):
        return {
            "box": np.array([*self.rng.uniform(0, 640, 2), 24, 48.0]),
            "pace": self.rng.normal(0, 5, 2),
            "look": self.rng.uniform(0, 1, (4, 3)),
            "left": int(self.rng.geometric(1 / 14)) + 2,
        }

    def crop_of(self, person):
        rows = np.repeat(person["look"], CROP[0] // 4, axis=0).T[:, :, None]
        return (rows + self.rng.normal(0, 0.25, (3, *CROP))).astype(np.float32)

    def __iter__(self):
        while True:
            for i, person in enumerate(self.people):
                person["box"][:2] += person["pace"] + self.rng.normal(0, 1, 2)
                person["left"] -= 1
                if person["left"] <= 0:
                    self.people[i] = self.newcomer()
            seen = [p for p in self.people if self.rng.random() > 0.04]
            yield (
                np.stack([p["box"] for p in seen]),
                torch.from_numpy(np.stack([self.crop_of(p) for p in seen])),
            )


class ReIDNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((4, 1)),
            nn.Flatten(),
            nn.Linear(128, EMBED),
        )

    def forward(self, crops):
        return F.normalize(self.body(crops), dim=1)


def pair_loss(net, tracks, temperature=0.1):
    anchors = torch.stack([t.templates[0] for t in tracks])
    others = torch.stack([t.templates[-1] for t in tracks])
    a, b = net(torch.cat([anchors, others])).chunk(2)
    return F.cross_entropy(a @ b.T / temperature, torch.arange(len(tracks)))


@torch.no_grad()
def rank_one(net, people=60):
    net.eval()
    street = Street(people, seed=99)
    first, second = (
        torch.from_numpy(np.stack([street.crop_of(p) for p in street.people])) for _ in range(2)
    )
    return (net(first) @ net(second).T).argmax(1).eq(torch.arange(people)).float().mean().item()


def main():
    torch.manual_seed(1)
    net, tracker = ReIDNet(), OnlineTracker()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loss_mean, validations, ended = 2.5, 0, 0
    for frame, (boxes, crops) in zip(range(1, FRAMES + 1), Street(15, seed=3)):
        net.eval()
        with torch.no_grad():
            features = net(crops).numpy()
        ended += tracker.step(frame, boxes, crops, features)
        mature = [t for t in tracker.tracked if len(t.templates) >= 3]
        if len(mature) >= 4:
            net.train()
            loss = pair_loss(net, mature)
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            loss_mean = 0.97 * loss_mean + 0.03 * loss.item()
        if frame % 100 == 0:
            validations += 1
            print(
                f"frame {frame} loss {loss_mean:.3f} rank1 {rank_one(net):.3f} tracks {len(tracker.tracked)} ended {ended}"
            )


if __name__ == "__main__":
    main()
