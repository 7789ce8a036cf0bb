"""Trains a tagger and uploads checkpoints in the background; the store is down now and then."""

import io
import queue
import random
import threading
import time

import torch
from torch import nn

EPOCHS, STEPS, SAVE_EVERY, BATCH, LENGTH, WORDS, TAGS = 6, 75, 5, 24, 20, 2000, 9


class StoreUnavailable(Exception):
    pass


class Store:
    """Stands in for a bucket; keeps only how large things are."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.sizes = {}

    def put(self, key, data):
        time.sleep(0.01)
        if self.dice.random() < 0.35:
            raise StoreUnavailable(f"503 for {key}")
        self.sizes[key] = len(data)


class Uploader(threading.Thread):
    """Uploads in order; what fails is set aside to be sent at the end."""

    def __init__(self, store):
        super().__init__(daemon=True)
        self.store = store
        self.waiting = queue.Queue(maxsize=4)
        self.failed = {}

    def run(self):
        while (item := self.waiting.get()) is not None:
            key, buffer = item
            try:
                self.store.put(key, buffer.getbuffer())
            except StoreUnavailable as error:
                self.failed[key] = (buffer, str(error))
            finally:
                self.waiting.task_done()

    def submit(self, key, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.waiting.put((key, buffer))

    def close(self):
        self.waiting.put(None)
        self.join()
        left = 0
        for key, (buffer, _) in self.failed.items():
            try:
                self.store.put(key, buffer.getbuffer())
            except StoreUnavailable:
                left += 1
        return left


class Tagger(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.inner = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, TAGS)

    def forward(self, ids):
        return self.out(self.inner(self.words(ids))[0])


class Sentences:
    """Words whose tag depends on the word before."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(TAGS, (WORDS,), generator=self.random)

    def batch(self):
        ids = (WORDS * torch.rand(BATCH, LENGTH, generator=self.random) ** 3).long()
        kinds = self.kind[ids]
        return ids, (kinds + 2 * kinds.roll(1, dims=1)) % TAGS


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, data = Tagger(), Sentences(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    uploader = Uploader(Store(0))
    uploader.start()
    step = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            ids, tags = data.batch()
            loss = nn.functional.cross_entropy(model(ids).transpose(1, 2), tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if step % SAVE_EVERY == 0:
                uploader.submit(f"tagger/{step:06d}.pt", model.state_dict())
        print(f"epoch {epoch}: {total / STEPS:.4f}", flush=True)
    print(f"{uploader.close()} never uploaded", flush=True)


if __name__ == "__main__":
    main()
