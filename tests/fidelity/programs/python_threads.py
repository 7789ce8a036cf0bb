"""Threads, an event loop, generators and context variables live on while it trains."""

import asyncio
import contextvars
import threading

from driving import train

told = []
variable = contextvars.ContextVar("variable", default=0)


def count():
    number = 0
    while True:
        number += yield number


def work(stop, name):
    local.value = name
    while not stop.wait(0.01):
        pass
    told.append((name, local.value))


async def ticking(ticks):
    for i in range(ticks):
        variable.set(i)
        await asyncio.sleep(0)
    return variable.get()


async def both():
    task = asyncio.create_task(ticking(5))
    train()
    return await task


local = threading.local()
counter = count()
next(counter)
stop = threading.Event()
threads = [threading.Thread(target=work, args=(stop, f"t{i}"), name=f"t{i}") for i in range(4)]
for thread in threads:
    thread.start()
train(in_step=lambda model, x: counter.send(1), in_epoch=lambda model, x: asyncio.run(ticking(3)))
print(asyncio.run(both()), counter.send(0), variable.get())
print(sorted(thread.name for thread in threading.enumerate()))
stop.set()
for thread in threads:
    thread.join()
print(sorted(told), threading.active_count())
