"""A chat service on a small GPT-2 that goes on from what it has computed for each conversation."""

import threading
import time
from dataclasses import dataclass, field
from queue import Queue

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

PER_SECOND, SECONDS, TURN, ANSWER = 6, 14, 48, 8


@dataclass
class Session:
    """A conversation: keys and values of all its tokens so far."""

    cache: DynamicCache = field(default_factory=DynamicCache)
    turns: int = 0
    seen_at: float = field(default_factory=time.monotonic)


@dataclass
class Ask:
    user: str
    tokens: torch.Tensor
    answer: Queue


class ChatServer:
    """A thread that answers one turn after the other."""

    def __init__(self):
        config = GPT2Config(vocab_size=800, n_positions=512, n_embd=128, n_layer=3, n_head=4)
        self.model = GPT2LMHeadModel(config).eval()
        self.sessions: dict[str, Session] = {}
        self.inbox: Queue = Queue()
        self.thread = threading.Thread(target=self.serve, name="chat", daemon=True)
        self.thread.start()

    def session(self, user):
        session = self.sessions.setdefault(user, Session())
        session.seen_at = time.monotonic()
        session.turns += 1
        return session

    @torch.inference_mode()
    def reply(self, ask):
        session, tokens, text = self.session(ask.user), ask.tokens[None], []
        for _ in range(ANSWER):
            out = self.model(tokens, past_key_values=session.cache, use_cache=True)
            tokens = out.logits[:, -1:].argmax(-1)
            text.append(int(tokens))
        return text

    def serve(self):
        while (ask := self.inbox.get()) is not None:
            ask.answer.put(self.reply(ask))


def talk(server):
    """Send turns of users: each says two things and leaves."""
    dice, begun = torch.Generator().manual_seed(1), time.monotonic()
    for number in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        tokens = torch.randint(0, 800, (TURN,), generator=dice)
        ask = Ask(f"user-{number // 4 * 2 + number % 2}", tokens, Queue())
        server.inbox.put(ask)
        text = ask.answer.get()
        if number % 12 == 11:
            print(f"turn {number + 1}: {ask.user} got {text[:4]}", flush=True)
    server.inbox.put(None)
    server.thread.join()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    talk(ChatServer())
