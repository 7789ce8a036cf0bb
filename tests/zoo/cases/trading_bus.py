"""Back-tests strategies against a bus of market events, one session after the other."""

import time

import numpy as np

SYMBOLS, SESSIONS, TICKS, PER_SECOND = 60, 120, 300, 10


class Bus:
    """Hands events to whoever subscribed to their topic."""

    def __init__(self):
        self.handlers = {}
        self.published = 0

    def subscribe(self, topic, handler, **filters):
        def filtered(event):
            if all(event.get(key) == value for key, value in filters.items()):
                handler(event)

        self.handlers.setdefault(topic, []).append(filtered if filters else handler)

    def unsubscribe(self, topic, handler):
        handlers = self.handlers.get(topic, [])
        if handler in handlers:
            handlers.remove(handler)

    def publish(self, topic, event):
        self.published += 1
        for handler in tuple(self.handlers.get(topic, ())):
            handler(event)


class Market:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.loadings = self.rng.standard_normal((SYMBOLS, 4)) * 0.004
        self.prices = np.full(SYMBOLS, 100.0)

    def tick(self):
        returns = self.loadings @ self.rng.standard_normal(4) + 0.002 * self.rng.standard_normal(
            SYMBOLS
        )
        self.prices *= np.exp(returns)
        return returns


class Session:
    """Runs one strategy: reversal against what the other symbols did."""

    def __init__(self, name, bus, look_back, threshold):
        self.name, self.bus, self.threshold = name, bus, threshold
        self.window = np.zeros((look_back, SYMBOLS))
        self.covariance = np.eye(SYMBOLS) * 1e-5
        self.position = np.zeros(SYMBOLS)
        self.profit, self.ticks, self.trades = 0.0, 0, 0

    def start(self):
        self.bus.subscribe("tick", self.on_tick)
        self.bus.subscribe("fill", self.on_fill, session=self.name)

    def stop(self):
        self.bus.unsubscribe("tick", self.on_tick)
        self.bus.unsubscribe("fill", self.on_fill)

    def on_tick(self, event):
        returns = event["returns"]
        self.profit += float(self.position @ returns)
        self.window[self.ticks % len(self.window)] = returns
        self.ticks += 1
        self.covariance += 0.02 * (np.outer(returns, returns) - self.covariance)
        if self.ticks % 2 == 0 and self.ticks >= len(self.window):
            _, vectors = np.linalg.eigh(self.covariance)
            market = vectors[:, -4:]
            recent = self.window.sum(0)
            own = recent - market @ (market.T @ recent)
            wanted = -np.sign(own) * (np.abs(own) > self.threshold)
            self.bus.publish("fill", {"session": self.name, "wanted": wanted})

    def on_fill(self, event):
        self.trades += int((event["wanted"] != self.position).sum())
        self.position = event["wanted"]


def main():
    bus, market = Bus(), Market(0)
    dice = np.random.default_rng(1)
    best, begun = ("", -1e9), time.monotonic()
    for number in range(SESSIONS):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        session = Session(
            f"reversal-{number}", bus, int(dice.integers(120, 180)), float(dice.uniform(0.01, 0.03))
        )
        session.start()
        for _ in range(TICKS):
            bus.publish("tick", {"returns": market.tick()})
        session.stop()
        best = max(best, (session.name, session.profit), key=lambda one: one[1])
        if number % 15 == 14:
            print(f"{number + 1} sessions, best {best[0]} with {best[1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
