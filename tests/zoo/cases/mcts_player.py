"""Plays an endless game by tree search; after each move the child becomes the root."""

import math
import random
import time
from array import array


class Node:
    __slots__ = ("children", "move", "parent", "prior", "value", "visits")

    def __init__(self, parent, move):
        self.parent = parent
        self.move = move
        self.children = []
        self.visits = 0
        self.value = 0.0
        self.prior = array("d", bytes(8 * 64))

    def expand(self, moves):
        self.children = [Node(self, move) for move in moves]  # feeds

    def select(self):
        total = math.log(self.visits + 1)
        return max(
            self.children,
            key=lambda c: (
                (c.value / c.visits if c.visits else 1.0) + math.sqrt(2 * total / (c.visits + 1))
            ),
        )


class MctsPlayer:
    def __init__(self, rng, simulations=120):
        self.rng = rng
        self.simulations = simulations
        self.root = Node(None, None)

    def rollout(self, node):
        return self.rng.random() + 0.02 * (node.move or 0)

    def simulate(self):
        node = self.root
        while node.children:
            node = node.select()
        if node.visits or node is self.root:
            node.expand(range(3))
            node = node.children[0]
        value = self.rollout(node)
        while node is not None and node is not self.root.parent:
            node.visits += 1
            node.value += value
            node = node.parent

    def advance(self):
        for _ in range(self.simulations):
            self.simulate()
        best = max(self.root.children, key=lambda child: child.visits)
        self.root = best  # feeds
        return best.move


def main():
    player = MctsPlayer(random.Random(3))
    moves = [0, 0, 0]
    for turn in range(500):
        moves[player.advance()] += 1
        time.sleep(0.015)
        if turn % 100 == 0:
            print("turn", turn, "moves", moves)


if __name__ == "__main__":
    main()
