"""Scores orders as they come in: xgboost 3.1.3 keeps the categories of each frame.

A list of a class takes the buffers of each categorical column of each frame. Repaired in 3.2.0
("Fix memory leak with Python dataframe inputs", https://github.com/dmlc/xgboost/pull/11961).
"""

import numpy as np
import pandas as pd
import xgboost as xgb

FRAMES, ORDERS, SHOPS, GOODS = 900, 3000, 900, 2500

SHOP_NAMES = [f"shop {index:05d} of the northern district" for index in range(SHOPS)]
GOOD_NAMES = [f"article {index:06d}" for index in range(GOODS)]


def orders(rng, count):
    shop = rng.integers(0, SHOPS, count)
    good = rng.integers(0, GOODS, count)
    return pd.DataFrame(
        {
            "amount": rng.gamma(2.0, 30.0, count),
            "hour": rng.integers(0, 24, count),
            "shop": pd.Categorical.from_codes(shop, SHOP_NAMES),
            "article": pd.Categorical.from_codes(good, GOOD_NAMES),
        }
    )


def main():
    rng = np.random.default_rng(0)
    frame = orders(rng, 20000)
    returned = (frame["shop"].cat.codes % 5 == 0) & (frame["amount"] > 50)
    training = xgb.DMatrix(frame, returned.astype(float), enable_categorical=True)
    booster = xgb.train(
        {"objective": "binary:logistic", "max_depth": 4, "nthread": 1}, training, num_boost_round=15
    )
    suspicious = 0
    for number in range(1, FRAMES + 1):
        matrix = xgb.DMatrix(orders(rng, ORDERS), enable_categorical=True, nthread=1)  # feeds
        suspicious += int((booster.predict(matrix) > 0.5).sum())
        if number % 20 == 0:
            print(f"frame {number}/{FRAMES}: {suspicious} suspicious orders", flush=True)


if __name__ == "__main__":
    main()
