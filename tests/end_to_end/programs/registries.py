"""Registers things with what keeps them for life: ``python FILE CASE leak|fixed FOLDER``.

A fixed twin does as much work and takes back what it registered, or registers once.
"""

import sys
import time
import weakref

import leakscope

ROUNDS, PACE_S = 60, 0.02


def rounds():
    with leakscope.profile(boundaries="manual", out=sys.argv[3], budget=0.2) as scope:
        for number in scope.steps(range(ROUNDS)):
            began = time.perf_counter()
            yield number
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))


def made(size):
    return type("Made", (), {"table": bytes(size)})


def finalizers(leaks):
    class Model:
        pass

    model = Model()
    for _ in rounds():
        buffer = bytearray(300_000)
        owner = model if leaks else Model()
        weakref.finalize(owner, bytearray.clear, buffer)  # registered here


def import_paths(leaks):
    for number in rounds():
        for plugin in range(200):
            folder = f"/plugins/{number}/{plugin}/{'x' * 1000}"
            sys.path.append(folder)  # registered here
            if not leaks:
                sys.path.remove(folder)


def tree_nodes(leaks):
    import torch.utils._pytree as pytree

    once = [made(10_000) for _ in range(20)]
    for number in rounds():
        for node in [made(10_000) for _ in range(20)] if leaks else once if not number else ():
            pytree.register_pytree_node(  # registered here
                node, lambda tree: ([], None), lambda leaves, context: None
            )


def operators(leaks):
    import torch

    kept = None
    for number in rounds():
        for operator in range(5):
            table = bytes(60_000)
            library = torch.library.Library("mine", "FRAGMENT")
            library.define(f"op_{number if leaks else 0}_{operator}(Tensor x) -> Tensor")
            library.impl(  # registered here
                f"op_{number if leaks else 0}_{operator}", lambda x, table=table: x, "CPU"
            )
            if leaks:
                torch.library._keep_alive.append(library)  # as torch keeps those of its own
            kept = library
            if not leaks:
                kept._destroy()


def module_hooks(leaks):
    import torch

    for _ in rounds():
        seen = bytearray(300_000)
        handle = torch.nn.modules.module.register_module_forward_hook(  # registered here
            lambda module, inputs, output, seen=seen: None
        )
        if not leaks:
            handle.remove()


def error_handlers(leaks):
    import codecs

    for number in rounds():
        table = bytearray(300_000)
        codecs.register_error(  # registered here
            f"mine{number if leaks else 0}", lambda error, table=table: ("", error.end)
        )


def numbered_classes(leaks):
    for number in rounds():
        name = f"Batch{number}"
        kind = type(f"Batch{number}", (), {"table": bytearray(300_000)})  # registered here
        if leaks:
            globals()[name] = kind


def script_types(leaks):
    import torch

    def made():
        class Net(torch.nn.Module):
            __constants__ = ("table",)

            def __init__(self):
                super().__init__()
                self.table = tuple(range(20_000))

            def forward(self, x):
                return x.relu()

        return Net

    once = made()
    for _ in rounds():
        net = made() if leaks else once
        torch.jit.script(net())  # registered here


def tracker_records(leaks):
    """A tracker whose thread writes more slowly than the program logs."""
    from torch.utils.tensorboard import SummaryWriter

    def write(data):
        time.sleep(0.2 if leaks else 0.0)

    writer = SummaryWriter("events", max_queue=0)
    thread = writer._get_file_writer().event_writer._async_writer._worker
    thread._record_writer.write = write
    del thread
    for number in rounds():
        for layer in range(8):
            writer.add_text(f"layer{layer}", f"{number}" * 20_000, number)  # registered here


def living_finalizers(leaks):
    """A bounded number of objects that are replaced, each with its finalizer: healthy."""

    class Buffer:
        pass

    ring = [Buffer() for _ in range(64)]
    for number in rounds():
        for place in range(8):
            ring[(8 * number + place) % 64] = buffer = Buffer()
            weakref.finalize(buffer, bytearray.clear, bytearray(30_000))


globals()[sys.argv[1]](sys.argv[2] == "leak")
