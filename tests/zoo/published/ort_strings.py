"""Scores baskets with an ONNX model: onnxruntime 1.20.1 keeps the strings of each request.

Repaired in 1.21.0 (https://github.com/microsoft/onnxruntime/pull/23105, issue 22271).
"""

import random
import string
import time
from dataclasses import dataclass, field

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, checker, helper, numpy_helper

REQUESTS = 4500
REPORT_EVERY = 225
BASKET = 80
KNOWN_CODES = 3000
CATEGORIES = 12


def make_codes(count: int, seed: int) -> list:
    rng = random.Random(seed)
    alphabet = string.ascii_uppercase + string.digits
    return ["".join(rng.choices(alphabet, k=10)) for _ in range(count)]


def export_model(codes: list, seed: int) -> bytes:
    """LabelEncoder (code -> category) followed by a lookup of the weights."""
    rng = np.random.default_rng(seed)
    categories = rng.integers(1, CATEGORIES, size=len(codes)).tolist()
    weights = rng.normal(0.0, 1.0, size=CATEGORIES).astype(np.float32)
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["codes"],
            ["category"],
            domain="ai.onnx.ml",
            keys_strings=codes,
            values_int64s=categories,
            default_int64=0,
        ),
        helper.make_node("Gather", ["weights", "category"], ["scores"]),
        helper.make_node("ReduceMean", ["scores"], ["score"], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "basket",
        [helper.make_tensor_value_info("codes", TensorProto.STRING, [None])],
        [
            helper.make_tensor_value_info("category", TensorProto.INT64, [None]),
            helper.make_tensor_value_info("score", TensorProto.FLOAT, [1]),
        ],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    )
    model.ir_version = 8
    checker.check_model(model)
    return model.SerializeToString()


class Shop:
    """Makes baskets: mostly known codes, some typed by hand."""

    def __init__(self, codes: list, seed: int):
        self.codes = codes
        self.random = random.Random(seed)

    def typed(self) -> str:
        return "x-" + "".join(self.random.choices(string.ascii_lowercase, k=14))

    def request(self, number: int) -> dict:
        lines = []
        for _ in range(BASKET):
            code = self.random.choice(self.codes) if self.random.random() < 0.8 else self.typed()
            lines.append({"code": code.lower() if self.random.random() < 0.3 else code})
        return {"session": f"s{number:06d}", "lines": lines}


@dataclass
class Statistics:
    requests: int = 0
    unknown: int = 0
    scores: list = field(default_factory=lambda: [0.0, 0.0])

    def add(self, categories: np.ndarray, score: float) -> None:
        self.requests += 1
        self.unknown += int((categories == 0).sum())
        self.scores[0] += score
        self.scores[1] += score * score

    def mean(self) -> float:
        return self.scores[0] / max(self.requests, 1)


class Scorer:
    def __init__(self, model: bytes):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.statistics = Statistics()

    def score(self, request: dict) -> float:
        codes = [line["code"].upper() for line in request["lines"]]
        categories, score = self.session.run(["category", "score"], {"codes": codes})  # feeds
        self.statistics.add(categories, float(score[0]))
        return float(score[0])


def main() -> None:
    codes = make_codes(KNOWN_CODES, seed=4)
    scorer = Scorer(export_model(codes, seed=5))
    shop = Shop(codes, seed=6)
    for number in range(1, REQUESTS + 1):
        scorer.score(shop.request(number))
        time.sleep(0.005)  # think time of the customers
        if number % REPORT_EVERY == 0:
            statistics = scorer.statistics
            print(
                f"request {number}/{REQUESTS}: mean score {statistics.mean():+.4f}, "
                f"{statistics.unknown} unknown codes",
                flush=True,
            )
    print("done:", scorer.statistics.requests, "requests")


if __name__ == "__main__":
    main()
