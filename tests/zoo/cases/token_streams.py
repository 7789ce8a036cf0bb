"""Serves text token by token from a small decoder to readers, some of whom go away early."""

import random
import threading
import time

import torch
from torch import nn

PER_SECOND, SECONDS = 8, 14
VOCABULARY, WIDTH, HEADS, LAYERS, PROMPT, LONGEST = 512, 128, 4, 3, 96, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x, past):
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x)), (k, v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens, past):
        x, present = self.embed(tokens), []
        for block, memory in zip(self.blocks, past, strict=True):
            x, memory = block(x, memory)
            present.append(memory)
        return x[:, -1] @ self.embed.weight.T, present

    @torch.inference_mode()
    def stream(self, prompt, longest):
        """Yield token after token."""
        past, tokens = [None] * LAYERS, prompt[None]
        for _ in range(longest):
            logits, past = self(tokens, past)
            tokens = torch.multinomial((logits / 0.8).softmax(-1), 1)
            yield int(tokens)


class Engine(threading.Thread):
    """Gives each open stream its next token, round by round."""

    def __init__(self, decoder):
        super().__init__(daemon=True)
        self.decoder = decoder
        self.streams, self.lock = {}, threading.Lock()
        self.done = threading.Event()
        self.sent = 0

    def open(self, request, prompt, reader):
        with self.lock:
            self.streams[request] = (self.decoder.stream(prompt, LONGEST), reader)

    def run(self):
        while not self.done.is_set():
            with self.lock:
                listening = [(r, *pair) for r, pair in self.streams.items() if pair[1].listens]
            for request, stream, reader in listening:
                token = next(stream, None)
                if token is None:
                    with self.lock:
                        del self.streams[request]
                else:
                    reader.take(token)
                    self.sent += 1
            if not listening:
                time.sleep(0.002)


class Reader:
    def __init__(self, patience):
        self.patience, self.text, self.listens = patience, [], True

    def take(self, token):
        self.text.append(token)
        self.listens = len(self.text) < self.patience


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice = random.Random(1)
    engine = Engine(Decoder().eval())
    engine.start()
    begun = time.monotonic()
    for request in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + request / PER_SECOND - time.monotonic()))
        patience = 16 if request % 3 == 2 else LONGEST + 1
        prompt = torch.tensor([dice.randrange(VOCABULARY) for _ in range(PROMPT)])
        engine.open(request, prompt, Reader(patience))
        if request % 24 == 23:
            print(f"{request + 1} requests, {engine.sent} tokens sent", flush=True)
    time.sleep(0.3)
    engine.done.set()
    engine.join()


if __name__ == "__main__":
    main()
