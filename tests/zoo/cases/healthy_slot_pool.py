"""Answers requests with an LSTM in slots; buffers of slots grow when needed and are used again."""

import asyncio
import random

import torch
from torch import nn

SECONDS, PER_SECOND, VOCABULARY, WIDTH, SLOTS = 15, 16, 400, 192, 24


class Slot:
    """Buffers of one request: they double when a text is longer than any before."""

    def __init__(self, number):
        self.number = number
        self.ids = torch.zeros(64, dtype=torch.long)
        self.states = torch.zeros(64, WIDTH)
        self.length = 0

    def reserve(self, length):
        size = len(self.ids)
        while size < length:
            size *= 2
        if size > len(self.ids):
            self.ids = torch.zeros(size, dtype=torch.long)
            self.states = torch.zeros(size, WIDTH)
        self.length = 0

    def append(self, token, state):
        self.ids[self.length] = token
        self.states[self.length] = state
        self.length += 1

    def attend(self, query):
        past = self.states[: self.length]
        return (past @ query / WIDTH**0.5).softmax(0) @ past


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.cell = nn.LSTMCell(WIDTH, WIDTH)
        self.out = nn.Linear(2 * WIDTH, VOCABULARY)


class Engine:
    def __init__(self, model):
        self.model = model.eval().requires_grad_(False)
        self.free = [Slot(number) for number in range(SLOTS)]
        self.longest_wait = 0
        self.done = 0

    async def slot(self):
        waited = 0
        while not self.free:
            await asyncio.sleep(0.01)
            waited += 1
        self.longest_wait = max(self.longest_wait, waited)
        return self.free.pop(0)

    async def answer(self, prompt, length):
        slot = await self.slot()
        try:
            slot.reserve(len(prompt) + length)
            state = None
            for place in range(len(prompt) + length):
                if place < len(prompt):
                    token = torch.tensor(prompt[place])
                state = self.model.cell(self.model.words(token)[None], state)
                slot.append(token, state[0][0])
                if place >= len(prompt) - 1:
                    both = torch.cat([state[0][0], slot.attend(state[0][0])])
                    token = self.model.out(both).argmax()
                if place % 8 == 7:
                    await asyncio.sleep(0)
            self.done += 1
            return slot.ids[: slot.length].tolist()
        finally:
            self.free.append(slot)


async def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    engine, dice = Engine(Writer()), random.Random(0)
    loop, running = asyncio.get_running_loop(), set()
    begun, written = loop.time(), 0
    for number in range(SECONDS * PER_SECOND):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        # Long prompts are rare: most buffers grow some time after the start.
        size = min(700, int(dice.lognormvariate(3.6, 0.9)) + 4)
        prompt = [dice.randrange(VOCABULARY) for _ in range(size)]
        task = asyncio.create_task(engine.answer(prompt, dice.randrange(8, 24)))
        running.add(task)
        task.add_done_callback(running.discard)
        if number % 40 == 39:
            print(f"{number + 1} asked", flush=True)
    for text in await asyncio.gather(*running):
        written += len(text)
    print(f"{engine.done} answered", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
