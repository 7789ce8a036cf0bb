"""Searches for settings of boosted trees by cross-validation, and tells which were best."""

import argparse
import time
import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer


def loans(seed, rows=1500, columns=24):
    """Return what is known of borrowers, and who paid late."""
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0.0, 0.8, (rows, columns))
    risk = np.log(x[:, 0]) - np.log(x[:, 1]) * np.log(x[:, 2]) + 0.5 * rng.standard_normal(rows)
    return x, (risk > 0.8).astype(int)


class Search:
    """Draws settings at random, those near the best more often."""

    def __init__(self, x, y, seed):
        self.x, self.y = x, y
        self.rng = np.random.default_rng(seed)
        self.results = []

    def draw(self):
        settings = {
            "learning_rate": float(10 ** self.rng.uniform(-1.5, -0.3)),
            "max_leaf_nodes": int(self.rng.integers(8, 24)),
            "l2_regularization": float(10 ** self.rng.uniform(-3, 1)),
        }
        if self.results and self.rng.random() < 0.4:
            best = max(self.results, key=lambda one: one["mean"])["settings"]
            settings["learning_rate"] = best["learning_rate"] * float(self.rng.uniform(0.8, 1.25))
        return settings

    def trial(self):
        settings = self.draw()
        model = make_pipeline(
            QuantileTransformer(n_quantiles=200, random_state=0),
            HistGradientBoostingClassifier(max_iter=12, early_stopping=False, **settings),
        )
        folds = StratifiedKFold(3, shuffle=True, random_state=len(self.results))
        scores = cross_validate(
            model, self.x, self.y, cv=folds, scoring="roc_auc",
            return_estimator=True, return_train_score=True,
        )  # fmt: skip
        self.results.append({"settings": settings, "mean": scores["test_score"].mean(), **scores})
        return scores["test_score"].mean()

    def table(self, count=3):
        """Return the best settings and how far they overfit."""
        best = sorted(self.results, key=lambda one: -one["mean"])[:count]
        return [
            f"{one['mean']:.4f} (train {one['train_score'].mean():.4f}) "
            f"leaves {one['settings']['max_leaf_nodes']}"
            for one in best
        ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=28)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    search, begun = Search(*loans(0), seed=1), time.monotonic()
    for trial in range(arguments.trials):
        # Others compute on this machine too: a trial starts each half second.
        time.sleep(max(0.0, begun + trial / 2 - time.monotonic()))
        search.trial()
        if trial % 8 == 7:
            print(f"trial {trial + 1}: best {search.table(1)[0]}", flush=True)
    print("\n".join(search.table()), flush=True)


if __name__ == "__main__":
    main()
