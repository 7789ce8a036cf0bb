"""Asynchronous policy-gradient training with rollout workers in child processes.

Each worker plays matches of the newest policy against the one before it, so a worker has
to know two sets of weights at a time.
"""

import multiprocessing as mp
import queue
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT, HIDDEN = 24, 6, 160
HORIZON = 24
UPDATES = 140
WORKERS = 2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(OBS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )
        self.pi = nn.Linear(HIDDEN, ACT)

    def forward(self, obs):
        return self.pi(self.body(obs))


class Duel:
    """Two players push a hidden state back and forth."""

    def __init__(self, generator):
        self.g = generator
        self.field = torch.randn(ACT, OBS, generator=generator)

    def reset(self):
        self.state = torch.randn(OBS, generator=self.g)
        return self.state

    def step(self, ours, theirs):
        push = self.field[ours] - self.field[theirs]
        self.state = 0.9 * self.state + 0.2 * push + 0.05 * torch.randn(OBS, generator=self.g)
        return self.state, float(torch.tanh(self.state[:4].sum()))


class Roster:
    """Policies known to this worker, by version."""

    def __init__(self):
        self._members = {}

    def enlist(self, version, weights):
        policy = Policy()
        policy.load_state_dict(weights)
        self._members[version] = policy.eval()

    def pick(self, version):
        return self._members.get(version) or self._members[max(self._members)]


def play(env, us, them, generator):
    obs, acts, rewards = [], [], []
    state = env.reset()
    with torch.inference_mode():
        for _ in range(HORIZON):
            a = torch.multinomial(us(state).softmax(-1), 1, generator=generator).item()
            b = torch.multinomial(them(-state).softmax(-1), 1, generator=generator).item()
            obs.append(state)
            acts.append(a)
            state, reward = env.step(a, b)
            rewards.append(reward)
    return torch.stack(obs).numpy(), acts, rewards


def rollout_worker(rank, inbox, outbox):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(100 + rank)
    env = Duel(generator)
    roster = Roster()
    for version, weights in iter(inbox.get, None):
        roster.enlist(version, {k: torch.from_numpy(v) for k, v in weights.items()})
        us, them = roster.pick(version), roster.pick(version - 1)
        outbox.put((rank, version, [play(env, us, them, generator) for _ in range(3)]))


def discounted(rewards, gamma=0.95):
    out, running = [], 0.0
    for r in reversed(rewards):
        running = r + gamma * running
        out.append(running)
    return out[::-1]


def learner_step(policy, optimizer, matches):
    obs = torch.cat([torch.from_numpy(o) for o, _, _ in matches])
    acts = torch.tensor([a for _, acts, _ in matches for a in acts])
    returns = torch.tensor([g for _, _, rs in matches for g in discounted(rs)])
    advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = (F.cross_entropy(policy(obs), acts, reduction="none") * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return returns.mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    outbox = ctx.Queue()
    inboxes = [ctx.Queue() for _ in range(WORKERS)]
    workers = [
        ctx.Process(target=rollout_worker, args=(i, box, outbox), daemon=True)
        for i, box in enumerate(inboxes)
    ]
    for w in workers:
        w.start()
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    smoothed = 0.0
    for version in range(UPDATES):
        began = time.monotonic()
        weights = {k: v.numpy().copy() for k, v in policy.state_dict().items()}
        for box in inboxes:
            box.put((version, weights))
        matches = []
        for _ in workers:
            try:
                matches += outbox.get(timeout=60)[2]
            except queue.Empty:
                raise RuntimeError("rollout worker stalled")
        smoothed += 0.1 * (learner_step(policy, optimizer, matches) - smoothed)
        if version % 35 == 34:
            print(f"update {version + 1} return {smoothed:.3f}", flush=True)
        time.sleep(max(0.0, 0.11 - (time.monotonic() - began)))
    for box in inboxes:
        box.put(None)
    for w in workers:
        w.join()


if __name__ == "__main__":
    main()
