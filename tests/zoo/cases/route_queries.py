"""Plans trips over a street network whose closures change; stops may lie off the streets."""

import random
import time
from itertools import pairwise

import networkx as nx
import numpy as np

SIDE, SECONDS, PER_SECOND = 26, 14, 22


def streets(seed):
    """Return a grid of streets with rivers that only some bridges cross."""
    dice = random.Random(seed)
    graph = nx.grid_2d_graph(SIDE, SIDE)
    for a, b in graph.edges:
        graph.edges[a, b]["minutes"] = dice.uniform(1, 3)
    for row in (8, 17):
        for column in range(SIDE):
            if column % 6:
                graph.remove_edge((column, row), (column, row + 1))
    return graph


class Closures:
    """Bridges that are closed for some time."""

    def __init__(self, graph, seed):
        self.graph, self.dice = graph, random.Random(seed)
        self.bridges = [
            ((column, row), (column, row + 1)) for row in (8, 17) for column in range(0, SIDE, 6)
        ]
        self.closed = {}

    def change(self):
        for bridge in self.bridges:
            if bridge in self.closed:
                if self.dice.random() < 0.2:
                    self.graph.add_edge(*bridge, minutes=self.closed.pop(bridge))
            elif self.dice.random() < 0.5:
                self.closed[bridge] = self.graph.edges[bridge]["minutes"]
                self.graph.remove_edge(*bridge)


class Router:
    """Finds trips between addresses, each linked to the streets around it."""

    def __init__(self, graph):
        self.graph = graph
        self.count = self.unreachable = 0

    def connect(self, address):
        """Add an address as a node, with what is needed to draw the way to it."""
        self.count += 1
        node = ("address", self.count)
        at = np.array(address)
        outline = at + 0.01 * np.random.default_rng(self.count).standard_normal((400, 2))
        self.graph.add_node(node, at=at, outline=outline)
        corner = np.floor(at).astype(int)
        for x in (0, 1):
            street = (int(corner[0]) + x, int(corner[1]))
            self.graph.add_edge(node, street, minutes=float(np.abs(at - street).sum()) * 2)
        return node

    def disconnect(self, *nodes):
        self.graph.remove_nodes_from(nodes)

    def trip(self, addresses):
        nodes = [self.connect(address) for address in addresses]
        minutes, corners = 0.0, 0
        for a, b in pairwise(nodes):
            part = nx.astar_path(self.graph, a, b, weight="minutes")
            minutes += nx.path_weight(self.graph, part, "minutes")
            corners += len(part)
        self.disconnect(*nodes)
        return minutes, corners


def main():
    graph = streets(0)
    router, closures, dice = Router(graph), Closures(graph, 1), random.Random(2)
    done, minutes, begun = 0, 0.0, time.monotonic()
    for number in range(SECONDS * PER_SECOND):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        if number % 5 == 0:
            closures.change()
        stops = [(dice.uniform(0, SIDE - 1.01), dice.uniform(0, SIDE - 1.01)) for _ in range(4)]
        try:
            length, _ = router.trip(stops)
        except nx.NetworkXNoPath:
            router.unreachable += 1
            continue
        done, minutes = done + 1, minutes + length
        if done % 40 == 0:
            print(f"{done} trips of {minutes / done:.1f} minutes", flush=True)
    print(f"{done} trips, {router.unreachable} without a way", flush=True)


if __name__ == "__main__":
    main()
