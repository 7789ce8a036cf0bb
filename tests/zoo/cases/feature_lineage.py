"""Builds features for a recommender day by day and notes in a graph what came from what."""

import time

import networkx as nx
import numpy as np

PER_SECOND, SECONDS = 10, 12
USERS, ITEMS, RANK = 600, 300, 24


class Lineage:
    """A graph of artefacts: from the readings to the factors that are served."""

    def __init__(self):
        self.graph = nx.DiGraph()
        self.latest = {}

    def record(self, kind, day, value, *sources, **attributes):
        name = f"{kind}@{day}"
        self.graph.add_node(name, kind=kind, value=value, **attributes)
        self.graph.add_edges_from((source, name) for source in sources)
        self.latest[kind] = name
        return name

    def value(self, kind):
        return self.graph.nodes[self.latest[kind]]["value"]

    def depth(self):
        return nx.dag_longest_path_length(self.graph.subgraph(list(self.graph)[-40:]))


class Recommender:
    """Alternating least squares that goes on from the factors of the day before."""

    def __init__(self, lineage, seed):
        self.lineage, self.rng = lineage, np.random.default_rng(seed)
        self.taste = self.rng.standard_normal((USERS, 6)) @ self.rng.standard_normal((6, ITEMS))
        start = self.rng.standard_normal((ITEMS, RANK)).astype(np.float32)
        lineage.record("items", "start", start)

    def clicks(self):
        odds = 1 / (1 + np.exp(2 - self.taste))
        return (self.rng.random((USERS, ITEMS)) < odds * 0.3).astype(np.float32)

    @staticmethod
    def solve(ratings, factors, ridge=4.0):
        gram = factors.T @ factors + ridge * np.eye(RANK, dtype=np.float32)
        return np.linalg.solve(gram, factors.T @ ratings.T).T.astype(np.float32)

    def day(self, day):
        clicks = self.clicks()
        counts = self.lineage.record("popularity", day, clicks.sum(0), total=float(clicks.sum()))
        items, source = self.lineage.value("items"), self.lineage.latest["items"]
        users = self.solve(clicks, items)
        users_name = self.lineage.record("users", day, users, source, counts, ridge=4.0)
        items = self.solve(clicks.T, users)
        self.lineage.record("items", day, items, users_name)
        return float(np.square(clicks - users @ items.T).mean())


def main():
    lineage = Lineage()
    recommender = Recommender(lineage, 0)
    begun = time.monotonic()
    for day in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + day / PER_SECOND - time.monotonic()))
        error = recommender.day(day)
        if day % 20 == 19:
            print(f"day {day + 1}: error {error:.4f}, depth {lineage.depth()}", flush=True)


if __name__ == "__main__":
    main()
