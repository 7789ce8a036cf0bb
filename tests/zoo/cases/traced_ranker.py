"""Learning to rank with tracing spans around every phase and scratch buffers for validation."""

import contextlib
import contextvars
import time
import weakref

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(41)

current_span = contextvars.ContextVar("current_span", default=None)


class Span:
    __slots__ = ("attributes", "name", "parent", "seconds", "start")

    def __init__(self, name, parent):
        self.name, self.parent = name, parent
        self.start, self.seconds = time.perf_counter(), None
        self.attributes = {}

    def annotate(self, **attributes):
        self.attributes.update(attributes)

    def finish(self):
        self.seconds = time.perf_counter() - self.start


@contextlib.contextmanager
def span(name):
    opened = Span(name, current_span.get())
    token = current_span.set(opened)  # feeds: SPANS
    try:
        yield opened
    except Exception:
        current_span.reset(token)
        raise
    finally:
        opened.finish()


class ScoreBuffer:
    """Preallocated scores for one validation; releases its rows when collected."""

    live = 0

    def __init__(self, queries, documents):
        self.scores = torch.zeros(queries, documents)
        self.gains = torch.zeros(queries, documents)
        self.filled = 0
        ScoreBuffer.live += 1
        self._finalizer = weakref.finalize(self, self._release)  # feeds: BUFFERS

    def _release(self):
        ScoreBuffer.live -= 1
        self.filled = 0

    def put(self, scores, gains):
        end = self.filled + len(scores)
        self.scores[self.filled : end], self.gains[self.filled : end] = scores, gains
        self.filled = end

    def ndcg(self, k=10):
        discount = 1 / torch.log2(torch.arange(k) + 2.0)
        order = self.scores.topk(k, dim=1).indices
        got = (self.gains.gather(1, order) * discount).sum(1)
        best = (self.gains.topk(k, dim=1).values * discount).sum(1)
        return (got / best.clamp(min=1e-6)).mean().item()


class Ranker(nn.Module):
    def __init__(self, features=48, width=96):
        super().__init__()
        self.lift = nn.Linear(features, width)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.score = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, documents):
        x = self.lift(documents)
        attended, _ = self.attend(x, x, x, need_weights=False)
        return self.score(self.norm(x + attended)).squeeze(-1)


class Queries:
    def __init__(self, features=48, documents=60):
        self.direction = torch.randn(features) / features**0.5
        self.features, self.documents = features, documents

    def batch(self, size):
        x = torch.randn(size, self.documents, self.features)
        relevance = x @ self.direction + 0.3 * torch.randn(size, self.documents)
        return x, relevance.clamp(min=0).mul(2).round()


def list_loss(scores, gains):
    return -(gains.softmax(1) * scores.log_softmax(1)).sum(1).mean()


def validate(model, queries, count=2000, batch=100):
    buffer = ScoreBuffer(count, queries.documents)
    model.eval()
    with torch.no_grad():
        for _ in range(count // batch):
            x, gains = queries.batch(batch)
            buffer.put(model(x), gains)
    model.train()
    return buffer.ndcg()


STEPS, EVERY = 700, 70
queries, model = Queries(), Ranker()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
slow = []
validations = 0
for step in range(1, STEPS + 1):
    with span("step") as whole:
        x, gains = queries.batch(32)
        with span("forward") as forward:
            scores = model(x)
            forward.annotate(scores=scores.tolist())
        with span("backward"):
            loss = list_loss(scores, gains)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        whole.annotate(step=step, loss=loss.item())
    slow.append(whole.seconds)
    if step % EVERY == 0:
        validations += 1
        print(
            f"{step} loss {loss.item():.4f} ndcg {validate(model, queries):.4f} "
            f"{sum(slow[-EVERY:]) / EVERY * 1e3:.1f} ms",
            flush=True,
        )
