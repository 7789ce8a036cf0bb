"""Two-layer GCN on a synthetic citation graph, with smoothed early stopping."""

import time

import networkx as nx
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED = 7
EPOCHS = 1152
VAL_EVERY = 8


def build_graph(n_nodes=1200, n_feats=96, n_classes=6):
    g = nx.barabasi_albert_graph(n_nodes, 4, seed=SEED)
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, n_classes, n_nodes)
    centers = rng.normal(0, 1, (n_classes, n_feats))
    feats = centers[labels] + rng.normal(0, 2.0, (n_nodes, n_feats))
    edges = np.array(list(g.edges())).T
    src = np.concatenate([edges[0], edges[1], np.arange(n_nodes)])
    dst = np.concatenate([edges[1], edges[0], np.arange(n_nodes)])
    deg = np.bincount(src, minlength=n_nodes).astype(np.float32)
    w = 1.0 / np.sqrt(deg[src] * deg[dst])
    adj = torch.sparse_coo_tensor(
        torch.tensor(np.stack([src, dst])), torch.tensor(w), (n_nodes, n_nodes)
    ).coalesce()
    return adj, torch.tensor(feats, dtype=torch.float32), torch.tensor(labels)


class GCN(nn.Module):
    def __init__(self, d_in, d_hid, d_out):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hid)
        self.fc2 = nn.Linear(d_hid, d_out)

    def forward(self, adj, x):
        h = F.relu(torch.sparse.mm(adj, self.fc1(x)))
        h = F.dropout(h, 0.4, self.training)
        return torch.sparse.mm(adj, self.fc2(h))


class SmoothedStopper:
    """Stops when the exponentially smoothed validation loss stalls."""

    def __init__(self, patience, beta=0.9):
        self.patience = patience
        self.beta = beta
        self.smoothed = None
        self.best = float("inf")
        self.bad = 0

    def update(self, loss):
        if self.smoothed is None:
            self.smoothed = loss
        else:
            self.smoothed = self.beta * self.smoothed + (1 - self.beta) * loss
        value = self.smoothed.item()
        if value < self.best - 1e-4:
            self.best = value
            self.bad = 0
        else:
            self.bad += 1
        return self.bad > self.patience


class RunState:
    def __init__(self):
        self.stopper = SmoothedStopper(patience=10_000)
        self.epoch = 0


class Trainer:
    def __init__(self):
        torch.manual_seed(SEED)
        self.adj, self.x, self.y = build_graph()
        self.model = GCN(self.x.shape[1], 48, 6)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3, weight_decay=5e-4)
        self.state = RunState()
        perm = torch.randperm(len(self.y))
        self.train_idx, self.val_idx = perm[:700], perm[700:]

    def train_epoch(self):
        self.model.train()
        self.opt.zero_grad()
        out = self.model(self.adj, self.x)
        loss = F.cross_entropy(out[self.train_idx], self.y[self.train_idx])
        loss.backward()
        self.opt.step()
        return loss.item()

    def validate(self):
        self.model.eval()
        out = self.model(self.adj, self.x)
        loss = F.cross_entropy(out[self.val_idx], self.y[self.val_idx])
        acc = (out[self.val_idx].argmax(1) == self.y[self.val_idx]).float().mean()
        return loss, acc.item()

    def fit(self):
        for epoch in range(EPOCHS):
            self.state.epoch = epoch
            loss = self.train_epoch()
            if epoch % VAL_EVERY == 0:
                val, acc = self.validate()
                if self.state.stopper.update(val):
                    print("early stop at", epoch)
                    break
                if epoch % 96 == 0:
                    print(
                        f"epoch {epoch:4d} loss {loss:.4f} val {val.item():.4f} acc {acc:.3f}",
                        flush=True,
                    )


if __name__ == "__main__":
    t0 = time.time()
    Trainer().fit()
    print(f"done in {time.time() - t0:.1f}s")
