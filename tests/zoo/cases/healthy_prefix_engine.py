"""Batch-1 inference engine with shared-prefix reuse, serving multi-turn conversations."""

import asyncio
import random
from collections import OrderedDict

import torch
import torch.nn as nn

torch.manual_seed(17)
torch.set_num_threads(1)

VOCAB, DIM, LAYERS = 800, 128, 3
PAGE = 16
TURN_PERIOD = 0.09
RUN_SECONDS = 24.0
CACHE_BYTES = 14 << 20


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x, prefix):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        k_all = torch.cat([prefix[0], k]) if prefix is not None else k
        v_all = torch.cat([prefix[1], v]) if prefix is not None else v
        attn = torch.softmax(q @ k_all.T / DIM**0.5, -1)
        return x + self.out(attn @ v_all), torch.stack([k, v])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens, prefix):
        x = self.embed(tokens)
        fresh = []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, None if prefix is None else prefix[i])
            fresh.append(kv)
        return x[-1] @ self.embed.weight.T, torch.stack(fresh)


class PrefixCache:
    """Pages of keys and values, looked up by all tokens up to the end of the page."""

    def __init__(self, budget):
        self.budget = budget
        self.used = 0
        self.pages = OrderedDict()
        self.hits = self.lookups = 0

    def match(self, tokens):
        found = []
        for end in range(PAGE, len(tokens), PAGE):
            self.lookups += 1
            page = self.pages.get(tuple(tokens[:end]))
            if page is None:
                break
            self.hits += 1
            self.pages.move_to_end(tuple(tokens[:end]))
            found.append(page)
        return found

    def insert(self, tokens, page):
        key = tuple(tokens)
        if key in self.pages:
            return
        self.pages[key] = page
        self.used += page.nbytes
        while self.used > self.budget:
            _, old = self.pages.popitem(last=False)
            self.used -= old.nbytes


class Engine:
    def __init__(self, model):
        self.model = model.eval()
        self.cache = PrefixCache(CACHE_BYTES)
        self._turnstile = asyncio.Lock()

    @torch.inference_mode()
    def _prefill(self, tokens):
        pages = self.cache.match(tokens)
        prefix = torch.cat(pages, dim=2) if pages else None
        done = len(pages) * PAGE
        logits, fresh = self.model(torch.tensor(tokens[done:]), prefix)
        for start in range(done, len(tokens) - PAGE + 1, PAGE):
            page = fresh[:, :, start - done : start - done + PAGE].clone()
            self.cache.insert(tokens[: start + PAGE], page)
        return logits

    async def complete(self, tokens, n_new):
        tokens = list(tokens)
        async with self._turnstile:
            for _ in range(n_new):
                tokens.append(int(self._prefill(tokens).argmax()))
                await asyncio.sleep(0)
        return tokens


async def conversation(engine, history, rng):
    history += [rng.randrange(VOCAB) for _ in range(rng.randint(20, 44))]
    return await engine.complete(history, n_new=4)


async def main():
    rng = random.Random(8)
    system = [rng.randrange(VOCAB) for _ in range(64)]
    engine = Engine(Model())
    open_chats = [list(system) for _ in range(5)]
    clock = asyncio.get_running_loop()
    start, turn = clock.time(), 0
    while clock.time() - start < RUN_SECONDS:
        slot = rng.randrange(len(open_chats))
        open_chats[slot] = await conversation(engine, open_chats[slot], rng)
        if len(open_chats[slot]) > 230:
            open_chats[slot] = list(system)
        turn += 1
        if turn % 60 == 0:
            ratio = engine.cache.hits / max(1, engine.cache.lookups)
            print(f"turn {turn}: {len(engine.cache.pages)} pages, hit ratio {ratio:.2f}")
        await asyncio.sleep(max(0.0, start + turn * TURN_PERIOD - clock.time()))


if __name__ == "__main__":
    asyncio.run(main())
