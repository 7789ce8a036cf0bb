"""Federated averaging over simulated hospitals with mailbox-based weight broadcast."""

import queue
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)
ROUNDS = 150
CLIENTS = 5


def make_model():
    return nn.Sequential(
        nn.Linear(60, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
    )


class Link:
    """Transport to one client: messages wait in the outbox until the client polls."""

    def __init__(self):
        self.outbox = queue.Queue()
        self.delivered = 0

    def poll_latest(self):
        latest = None
        while not self.outbox.empty():
            latest = self.outbox.get()
            self.delivered += 1
        return latest


class Hospital:
    def __init__(self, cid, link):
        self.cid = cid
        self.link = link
        g = torch.Generator().manual_seed(100 + cid)
        self.x = torch.randn(256, 60, generator=g) + 0.2 * cid
        self.y = (self.x[:, :5].sum(1) > cid).long()
        self.model = make_model()
        self.online = True

    def local_update(self):
        weights = self.link.poll_latest()
        self.model.load_state_dict(weights)
        opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        for i in range(0, 256, 32):
            loss = nn.functional.cross_entropy(self.model(self.x[i : i + 32]), self.y[i : i + 32])
            opt.zero_grad()
            loss.backward()
            opt.step()
        return self.model.state_dict(), loss.item()


class Server:
    def __init__(self):
        self.model = make_model()
        self.links = {cid: Link() for cid in range(CLIENTS)}

    def broadcast(self):
        snapshot = {k: v.clone() for k, v in self.model.state_dict().items()}
        for link in self.links.values():
            link.outbox.put(snapshot)

    def aggregate(self, updates):
        with torch.no_grad():
            for name, p in self.model.state_dict().items():
                p.copy_(torch.stack([u[name] for u in updates]).mean(0))


def main():
    torch.manual_seed(8)
    server = Server()
    hospitals = [Hospital(cid, server.links[cid]) for cid in range(CLIENTS)]
    start = time.time()
    for rnd in range(ROUNDS):
        if rnd == 3:
            hospitals[4].online = False  # site maintenance: will fetch when it is back
        server.broadcast()
        updates, losses = [], []
        for h in hospitals:
            if h.online:
                state, loss = h.local_update()
                updates.append(state)
                losses.append(loss)
        server.aggregate(updates)
        time.sleep(0.02)
        if rnd % 15 == 0:
            print(
                f"round {rnd} clients {len(updates)} loss {sum(losses) / len(losses):.4f}",
                flush=True,
            )
    print(f"{ROUNDS} rounds in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
