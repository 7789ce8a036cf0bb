"""The address space is limited; the program asks for too much and goes on."""

import resource

from driving import train

held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = held + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def ask(model, x):
    try:
        bytearray(2 << 30)
    except MemoryError:
        print("no memory")


train(in_epoch=ask)
print(resource.getrlimit(resource.RLIMIT_AS)[0] == limit)
