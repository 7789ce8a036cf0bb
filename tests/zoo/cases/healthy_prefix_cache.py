"""An embedding service in asyncio that reuses the states of prompts' beginnings, newest first."""

import asyncio
from collections import OrderedDict

import torch
from torch import nn

PER_SECOND, SECONDS, BLOCK, WIDTH, MOST = 30, 14, 32, 160, 120


class PrefixCache:
    """States after a beginning of a prompt; the one that was used longest ago makes room."""

    def __init__(self, most):
        self.most = most
        self.states = OrderedDict()
        self.hits = self.asked = 0

    def longest(self, tokens):
        self.asked += 1
        for end in range(len(tokens) - BLOCK, 0, -BLOCK):
            key = tuple(tokens[:end])
            if key in self.states:
                self.states.move_to_end(key)
                self.hits += 1
                return end, self.states[key]
        return 0, None

    def put(self, tokens, state):
        self.states[tuple(tokens)] = state
        while len(self.states) > self.most:
            self.states.popitem(last=False)


class Encoder(nn.Module):
    def __init__(self, vocabulary=1000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.cell = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)

    @torch.inference_mode()
    def extend(self, tokens, state):
        outputs, hidden = self.cell(self.embed(torch.tensor([tokens])), state and state[1])
        return torch.cat([state[0], outputs], 1) if state else outputs, hidden


class Service:
    def __init__(self):
        self.encoder, self.cache = Encoder().eval(), PrefixCache(MOST)
        self.lock = asyncio.Lock()

    async def embed(self, tokens):
        async with self.lock:
            at, state = self.cache.longest(tokens)
            for start in range(at, len(tokens), BLOCK):
                state = self.encoder.extend(tokens[start : start + BLOCK], state)
                self.cache.put(tokens[: start + BLOCK], state)
                await asyncio.sleep(0)
        return state[0].mean(1).squeeze(0)


async def user(service, number, systems, generator):
    tail = torch.randint(0, 1000, (BLOCK * 2,), generator=generator).tolist()
    answer = await service.embed(systems[number % len(systems)] + tail)
    return float(answer.norm())


async def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    service, generator = Service(), torch.Generator().manual_seed(1)
    systems = torch.randint(0, 1000, (12, BLOCK * 4), generator=generator).tolist()
    loop, running = asyncio.get_running_loop(), set()
    begun = loop.time()
    for number in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        task = asyncio.create_task(user(service, number, systems, generator))
        running.add(task)
        task.add_done_callback(running.discard)
        if number % 60 == 59:
            print(
                f"{number + 1} asked, {service.cache.hits} of {service.cache.asked} hit", flush=True
            )
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
