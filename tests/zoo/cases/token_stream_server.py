"""Streaming decoder behind an asyncio front end, driven by simulated chat clients."""

import asyncio
import itertools
import random
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)

VOCAB, DIM, LAYERS, HEADS = 512, 192, 2, 4
ARRIVAL_PERIOD = 0.08
DECODE_PERIOD = 0.012
SERVE_SECONDS = 18.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x, past):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        if past is not None:
            k = torch.cat([past[0], k], dim=0)
            v = torch.cat([past[1], v], dim=0)

        def split(t):
            return t.view(t.shape[0], HEADS, -1).transpose(0, 1)

        att = F.scaled_dot_product_attention(split(q), split(k), split(v))
        y = att.transpose(0, 1).reshape(x.shape[0], DIM)
        return x + self.out(y), (k, v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens, past):
        x = self.embed(tokens)
        present = []
        for i, block in enumerate(self.blocks):
            x, kv = block(x, None if past is None else past[i])
            present.append(tuple(t.clone() for t in kv))
        return x[-1] @ self.embed.weight.T, present


@dataclass
class Sequence:
    seq_id: int
    tokens: list
    max_new: int
    out: asyncio.Queue = field(default_factory=asyncio.Queue)
    produced: int = 0


class Engine:
    def __init__(self, model):
        self.model = model.eval()
        self.running: dict[int, Sequence] = {}
        self.kv_slots: dict[int, list] = {}
        self._ids = itertools.count()
        self.finished = self.aborted = 0

    @torch.inference_mode()
    def _advance(self, seq):
        past = self.kv_slots.get(seq.seq_id)
        feed = seq.tokens if past is None else seq.tokens[-1:]
        logits, present = self.model(torch.tensor(feed), past)
        self.kv_slots[seq.seq_id] = present
        token = int(logits.argmax())
        seq.tokens.append(token)
        seq.produced += 1
        seq.out.put_nowait(token)

    async def loop(self):
        clock = asyncio.get_running_loop()
        due = clock.time()
        while True:
            for seq in list(self.running.values()):
                self._advance(seq)
                if seq.produced >= seq.max_new:
                    seq.out.put_nowait(None)
                    self._retire(seq)
            due += DECODE_PERIOD
            await asyncio.sleep(max(0.0, due - clock.time()))

    def _retire(self, seq):
        del self.running[seq.seq_id]
        del self.kv_slots[seq.seq_id]
        self.finished += 1

    def abort(self, seq):
        if self.running.pop(seq.seq_id, None) is not None:
            self.aborted += 1

    async def stream(self, prompt, max_new):
        seq = Sequence(next(self._ids), list(prompt), max_new)
        self.running[seq.seq_id] = seq
        try:
            while (token := await seq.out.get()) is not None:
                yield token
        finally:
            self.abort(seq)


async def chat_client(engine, prompt, max_new, patience):
    reply = []
    tokens = engine.stream(prompt, max_new)
    async for token in tokens:
        reply.append(token)
        if len(reply) >= patience:
            break
    await tokens.aclose()
    return reply


async def main():
    rng = random.Random(5)
    engine = Engine(Decoder())
    decode = asyncio.create_task(engine.loop())
    clients = set()
    clock = asyncio.get_running_loop()
    start = clock.time()
    for n in range(int(SERVE_SECONDS / ARRIVAL_PERIOD)):
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(48, 80))]
        patience = 10 if n % 5 in (1, 3) else 1000
        task = asyncio.create_task(chat_client(engine, prompt, 32, patience))
        clients.add(task)
        task.add_done_callback(clients.discard)
        await asyncio.sleep(max(0.0, start + (n + 1) * ARRIVAL_PERIOD - clock.time()))
    await asyncio.gather(*clients)
    decode.cancel()
    print(f"finished={engine.finished} disconnected={engine.aborted}")


if __name__ == "__main__":
    asyncio.run(main())
