"""Click-prediction service replay: events are joined with user features kept in an
in-memory SQLite table, an sklearn model is updated online and a torch encoder is
refreshed on recent traffic."""

import sqlite3
import time

import numpy as np
import torch
from pydantic import BaseModel, Field
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn

DIM = 256
MAX_ROWS = 14000
TICKS = 520
EVENTS_PER_TICK = 64


class Event(BaseModel):
    user_id: int = Field(ge=0)
    item_id: int = Field(ge=0, lt=500)
    hour: int = Field(ge=0, le=23)
    clicked: bool


class Traffic:
    """New visitors keep arriving; most events come from users seen recently."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.next_user = 1000
        self.taste = self.rng.normal(size=DIM) / np.sqrt(DIM)

    def profile(self, user_id):
        return np.random.default_rng(user_id).normal(size=DIM).astype(np.float32)

    def tick(self, hour):
        events = []
        for _ in range(EVENTS_PER_TICK):
            if self.rng.random() < 0.8:
                self.next_user += 1
                user = self.next_user
            else:
                user = max(0, self.next_user - int(self.rng.exponential(2000)))
            item = int(self.rng.integers(500))
            signal = float(self.profile(user) @ self.taste) + 0.4 * np.sin(item)
            events.append(Event(user_id=user, item_id=item, hour=hour, clicked=bool(signal > 0.2)))
        return events


class FeatureStore:
    def __init__(self, traffic, max_rows):
        self.traffic = traffic
        self.max_rows = max_rows
        self.db = sqlite3.connect(":memory:")
        self.db.execute(
            "CREATE TABLE features (user_id INTEGER PRIMARY KEY, touched INTEGER, vec BLOB)"
        )
        self.db.execute("CREATE INDEX by_touch ON features(touched)")
        self.clock = 0

    def lookup(self, user_ids):
        out = np.empty((len(user_ids), DIM), dtype=np.float32)
        for i, user in enumerate(user_ids):
            self.clock += 1
            row = self.db.execute("SELECT vec FROM features WHERE user_id = ?", (user,)).fetchone()
            if row is None:
                vec = self.traffic.profile(user)
                self.db.execute(
                    "INSERT INTO features VALUES (?, ?, ?)", (user, self.clock, vec.tobytes())
                )
            else:
                vec = np.frombuffer(row[0], dtype=np.float32)
                self.db.execute(
                    "UPDATE features SET touched = ? WHERE user_id = ?", (self.clock, user)
                )
            out[i] = vec
        return out

    def trim(self):
        extra = self.db.execute("SELECT COUNT(*) FROM features").fetchone()[0] - self.max_rows
        if extra > 0:
            self.db.execute(
                "DELETE FROM features WHERE user_id IN "
                "(SELECT user_id FROM features ORDER BY touched LIMIT ?)",
                (extra,),
            )
        self.db.commit()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(500, 16)
        self.net = nn.Sequential(nn.Linear(DIM + 18, 192), nn.ReLU(), nn.Linear(192, 24), nn.Tanh())
        self.head = nn.Linear(24, 1)

    def forward(self, vec, item, hour):
        angle = hour.float() * (2 * np.pi / 24)
        clock = torch.stack([angle.sin(), angle.cos()], dim=1)
        code = self.net(torch.cat([vec, self.item(item), clock], dim=1))
        return code, self.head(code).squeeze(1)


def main():
    torch.manual_seed(0)
    traffic = Traffic(seed=8)
    store = FeatureStore(traffic, MAX_ROWS)
    encoder = Encoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    scaler, online = StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)
    correct = seen = 0
    started = time.perf_counter()
    for tick in range(TICKS):
        events = traffic.tick(tick // 20 % 24)
        vec = torch.from_numpy(store.lookup([e.user_id for e in events]))
        item = torch.tensor([e.item_id for e in events])
        hour = torch.tensor([e.hour for e in events])
        y = torch.tensor([e.clicked for e in events]).float()
        for _ in range(3):
            code, logit = encoder(vec, item, hour)
            loss = nn.functional.binary_cross_entropy_with_logits(logit, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        feats = scaler.partial_fit(code.detach().numpy()).transform(code.detach().numpy())
        if tick:
            correct += int((online.predict(feats) == y.numpy()).sum())
            seen += len(events)
        online.partial_fit(feats, y.numpy(), classes=[0.0, 1.0])
        store.trim()
        if tick % 80 == 79:
            rate = seen / (time.perf_counter() - started)
            print(f"tick {tick:4d} acc {correct / seen:.3f} events/s {rate:.0f}", flush=True)
    store.db.close()


if __name__ == "__main__":
    main()
