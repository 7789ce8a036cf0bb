"""Registers things with torch: ``python FILE CASE leak|fixed FOLDER``.

A fixed twin does as much work and takes back what it registered, or registers once. What is healthy
by itself has no twin.
"""

import os

import torch
import torch.utils._pytree as pytree
from paced_rounds import keeping, made_class, rounds, run
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook


def tree_nodes(leaks):
    once = [made_class(10_000) for _ in range(20)]
    for number in rounds():
        for node in (
            [made_class(10_000) for _ in range(20)] if leaks else once if not number else ()
        ):
            pytree.register_pytree_node(  # registered here
                node, lambda tree: ([], None), lambda leaves, context: None
            )


def operators(leaks):
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
    for _ in rounds():
        seen = bytearray(300_000)
        handle = torch.nn.modules.module.register_module_forward_hook(  # registered here
            lambda module, inputs, output, seen=seen: None
        )
        if not leaks:
            handle.remove()


def script_types(leaks):
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


def custom_operators(leaks):
    """Operators that are made where they are used, each with a table of its own."""

    def made(name, table):
        @torch.library.custom_op(name, mutates_args=())  # registered here
        def scale(x: torch.Tensor) -> torch.Tensor:
            return x * len(table)

        return scale

    scale = made("mine::scale", bytearray(300_000))
    for number in rounds():
        if leaks:
            scale = made(f"mine::scale_{number}", bytearray(300_000))
        scale(torch.ones(8))


def backward_hooks(leaks):
    for _ in rounds():
        handle = nn.modules.module.register_module_full_backward_hook(keeping())  # registered here
        if not leaks:
            handle.remove()


def parameter_hooks(leaks):
    for _ in rounds():
        handle = nn.modules.module.register_module_parameter_registration_hook(  # registered here
            keeping()
        )
        if not leaks:
            handle.remove()


def optimizer_hooks(leaks):
    for _ in rounds():
        handle = register_optimizer_step_post_hook(  # registered here
            keeping()
        )
        if not leaks:
            handle.remove()


def sent_handles(leaks):
    """Tensors are put into a queue from which no one takes them."""
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    for _ in rounds():
        queue.put(torch.ones(75_000))  # registered here
        if not leaks:
            queue.get()


def handles_by_name(leaks):
    """The same by the sharing strategy that gives each tensor a file."""
    torch.multiprocessing.set_sharing_strategy("file_system")
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    for _ in rounds():
        queue.put(torch.ones(75_000))  # registered here
        if not leaks:
            queue.get()


def process_groups(leaks):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    for _ in rounds():
        group = torch.distributed.new_group([0])  # registered here
        torch.distributed.all_reduce(torch.ones(50_000), group=group)
        if not leaks:
            torch.distributed.destroy_process_group(group)
    torch.distributed.destroy_process_group()


def traced_sources(leaks):
    """A graph that is edited and generated again in each step."""

    def deep(x):
        for _ in range(2000):
            x = x + 1
        return x

    traced = torch.fx.symbolic_trace(deep)
    for _ in rounds():
        traced.graph.lint()
        if leaks:
            traced.recompile()  # registered here


def compilers(leaks):
    """A backend that is made in each step, with a table."""

    def compiled():
        table = bytearray(300_000)
        backend = lambda graph, inputs: (graph.forward, table)[0]  # noqa: E731
        return torch.compile(torch.relu, backend=backend)  # registered here

    relu = compiled()
    for _ in rounds():
        if leaks:
            relu = compiled()
        relu(torch.ones(8))


def compiled_modules(leaks):
    """Modules of generated code, as Inductor loads them for each graph."""
    from torch._inductor.codecache import PyCodeCache

    for number in rounds():
        source = f"number = {number if leaks else 0}\ntable = bytearray(300_000)\n"
        key, path = PyCodeCache.write(source)
        PyCodeCache.load_by_key_path(key, path, linemap=[(1, "x")])  # registered here


def kernels(leaks):
    """Kernels that traced graphs refer to by number, with their tables."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    once = keeping()
    for _ in rounds():
        kernel = keeping() if leaks else once
        kernel_side_table.add_kernel(kernel)  # registered here


if __name__ == "__main__":
    run(globals())
