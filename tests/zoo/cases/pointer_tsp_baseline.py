"""Learns tours by a pointer network and REINFORCE, with a moving baseline of what a critic expects."""

import torch
from torch import nn

STEPS, BATCH, CITIES, WIDTH = 260, 64, 14, 64


class Baseline(nn.Module):
    """A critic whose expectations are averaged over batches, so that rewards vary less."""

    def __init__(self, decay=0.9):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2 * CITIES, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, 1)
        )
        self.decay = decay
        self.average = None

    def forward(self, cities):
        expected = self.body(cities.flatten(1)).squeeze(1)
        mean = expected.mean()
        if self.average is None:
            self.average = mean
        else:
            self.average = self.decay * self.average + (1 - self.decay) * mean
        return expected, self.average.detach()


class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, WIDTH)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True), 2
        )
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.begin = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, cities, greedy=False):
        places = self.encoder(self.embed(cities))
        state = places.mean(1)
        given = self.begin.expand(len(cities), -1)
        visited = torch.zeros(len(cities), CITIES, dtype=torch.bool)
        tour, log_probs = [], []
        for _ in range(CITIES):
            state = self.cell(given, state)
            scores = torch.einsum("bw,bcw->bc", self.query(state), places) / WIDTH**0.5
            scores = (10 * scores.tanh()).masked_fill(visited, -torch.inf)
            chances = torch.distributions.Categorical(logits=scores)
            city = scores.argmax(1) if greedy else chances.sample()
            tour.append(city)
            log_probs.append(chances.log_prob(city))
            visited = visited.scatter(1, city[:, None], True)
            given = places[torch.arange(len(cities)), city]
        return torch.stack(tour, 1), torch.stack(log_probs, 1).sum(1)


def length(cities, tour):
    there = cities.gather(1, tour[..., None].expand(-1, -1, 2))
    return (there - there.roll(1, 1)).norm(dim=2).sum(1)


@torch.no_grad()
def evaluate(policy, random):
    cities = torch.rand(256, CITIES, 2, generator=random)
    tour, _ = policy(cities, greedy=True)
    return length(cities, tour).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    policy, critic = Pointer(), Baseline()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.body.parameters(), lr=1e-3)
    for step in range(STEPS):
        cities = torch.rand(BATCH, CITIES, 2, generator=random)
        tour, log_prob = policy(cities)
        reward = -length(cities, tour)
        expected, average = critic(cities)
        advantage = reward - 0.5 * (expected.detach() + average)
        optimizer.zero_grad(set_to_none=True)
        (-advantage * log_prob).mean().backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        critic_optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(expected, reward).backward(retain_graph=True)
        critic_optimizer.step()
        if step % 40 == 39:
            print(
                f"step {step + 1}: {evaluate(policy, random):.3f}, baseline {average:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
