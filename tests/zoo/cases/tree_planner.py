"""A planner for a warehouse robot: it searches a tree at each move, and learns from its searches."""

import math

import torch
from torch import nn
from torch.nn import functional as F

MOVES, SENSES, WIDTH, SEARCHES, DECISIONS = 6, 128, 256, 16, 450
SUBSTEPS = 6


class Node:
    """A state that the search has been to."""

    __slots__ = ("children", "move", "parent", "prior", "state", "value", "visits")

    def __init__(self, state, prior, parent=None, move=None):
        self.state = state
        self.prior = prior
        self.parent = parent
        self.move = move
        self.children = {}
        self.visits = 0
        self.value = 0.0

    def best_child(self):
        return max(self.children.values(), key=self.urgency)

    def urgency(self, child):
        mean = child.value / child.visits if child.visits else 0.0
        explore = 1.2 * child.prior * math.sqrt(self.visits) / (1 + child.visits)
        return mean + explore


class Planner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SENSES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.policy = nn.Linear(WIDTH, MOVES)
        self.critic = nn.Linear(WIDTH, 1)

    def forward(self, states):
        hidden = torch.relu(self.body(states))
        return self.policy(hidden), self.critic(hidden).squeeze(-1)


class Search:
    def __init__(self, planner, world, state):
        self.planner, self.world = planner, world
        self.root = Node(state, 1.0)

    def run(self):
        """Return how often each move was tried from where the robot stands."""
        for _ in range(SEARCHES):
            node = self.root
            while node.children:
                node = node.best_child()
            value = self.expand(node)
            while node is not None:
                node.visits += 1
                node.value += value
                if node is self.root:
                    break
                node = node.parent
        return torch.tensor([self.root.children[m].visits for m in range(MOVES)]).float()

    @torch.no_grad()
    def expand(self, node):
        logits, value = self.planner(node.state.unsqueeze(0))
        priors = logits.softmax(-1)[0].tolist()
        for move, prior in enumerate(priors):
            state = self.world.after(node.state, move)
            node.children[move] = Node(state, prior, node, move)
        return value.item()

    def advance(self, move):
        """Go on from a move that was made, with what the search knows of it."""
        self.root = self.root.children[move]


class World:
    def __init__(self):
        self.turns = [torch.linalg.qr(torch.randn(SENSES, SENSES))[0] for _ in range(MOVES)]
        self.goal = torch.randn(SENSES) / math.sqrt(SENSES)

    def after(self, state, move):
        for _ in range(SUBSTEPS):
            state = torch.lerp(state, self.turns[move] @ state, 0.3) + 0.01 * self.goal
        return state / state.norm().clamp(min=1.0)

    def reward(self, state):
        return float(torch.tanh(state @ self.goal))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    world, planner = World(), Planner()
    optimizer = torch.optim.Adam(planner.parameters(), lr=1e-3)
    search = Search(planner, world, torch.randn(SENSES))
    for step in range(1, DECISIONS + 1):
        visits = search.run()
        state = search.root.state
        move = int(torch.multinomial(visits, 1))
        logits, value = planner(state.unsqueeze(0))
        target = torch.tensor([world.reward(world.after(state, move))])
        loss = F.cross_entropy(logits, (visits / visits.sum()).unsqueeze(0))
        loss = loss + F.mse_loss(value, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        search.advance(move)
        if step % 30 == 0:
            print(f"decision {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
