"""A gateway that scores images for clients; what is under way is answered when it shuts down."""

import asyncio
import random

import torch
from torch import nn

SECONDS, PER_SECOND, SIZE, BATCH = 12, 40, 64, 8


class Request:
    def __init__(self, number, picture, future):
        self.number, self.picture, self.future = number, picture, future


class Scorer:
    """Gathers requests into batches and runs the network on them."""

    def __init__(self):
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 20),
        ).eval()  # fmt: skip
        self.waiting = asyncio.Queue()
        self.batches = 0

    async def serve(self):
        while True:
            some = [await self.waiting.get()]
            await asyncio.sleep(0.02)
            while not self.waiting.empty() and len(some) < BATCH:
                some.append(self.waiting.get_nowait())
            with torch.inference_mode():
                scores = self.network(torch.stack([request.picture for request in some]))
            self.batches += 1
            for request, row in zip(some, scores, strict=True):
                if not request.future.done():
                    request.future.set_result(row.argmax().item())


class Gateway:
    def __init__(self, scorer):
        self.scorer = scorer
        self.closing = asyncio.get_running_loop().create_future()
        self.refused = self.answered = 0

    async def handle(self, number, picture):
        request = Request(number, picture, asyncio.get_running_loop().create_future())
        self.closing.add_done_callback(lambda _: self.refuse(request))
        await self.scorer.waiting.put(request)
        answer = await request.future
        self.answered += 1
        return answer

    def refuse(self, request):
        """Answer that nobody is there any more, where no answer was given."""
        if not request.future.done():
            self.refused += 1
            request.future.set_exception(ConnectionError(f"request {request.number}"))


async def client(gateway, number, dice):
    noise = torch.Generator().manual_seed(number)
    picture = torch.rand(3, SIZE, SIZE, generator=noise)
    picture[dice.randrange(3)] += dice.random()
    return await gateway.handle(number, picture)


async def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loop, dice = asyncio.get_running_loop(), random.Random(0)
    scorer = Scorer()
    gateway = Gateway(scorer)
    server = asyncio.create_task(scorer.serve())
    running, begun = set(), loop.time()
    for number in range(SECONDS * PER_SECOND):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        task = asyncio.create_task(client(gateway, number, dice))
        running.add(task)
        task.add_done_callback(running.discard)
        if number % (2 * PER_SECOND) == 0:
            print(
                f"{number} requests, {gateway.answered} answered in {scorer.batches} batches",
                flush=True,
            )
    await asyncio.gather(*running)
    gateway.closing.set_result(None)
    server.cancel()


if __name__ == "__main__":
    asyncio.run(main())
