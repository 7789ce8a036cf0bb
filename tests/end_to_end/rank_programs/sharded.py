"""Distributed training over gloo that keeps what wrappers make: ``sharded.py CASE leak|fixed``.

Every fixed twin does as much work and keeps numbers, removes its hook, or wraps once.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, ROWS = 120, 128, 256


def trained(model):
    """Yield a number for each step of a training, before its loss is taken back."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(STEPS):
        loss = model(torch.rand(ROWS, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield number


def network():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def tensors_kept(leaks):
    """Distributed tensors that are kept for a log: each keeps its local part."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    log = []
    for _ in trained(DistributedDataParallel(network())):
        outputs = distribute_tensor(torch.rand(2 * ROWS, WIDTH), mesh, [Shard(0)])
        means = outputs.redistribute(mesh, [Replicate()])
        log.append(outputs if leaks else float(means.to_local().mean()))  # grows here


def full_parameters_kept(leaks):
    """Whole parameters that are gathered of a sharded model for an average, and kept."""
    model = network()
    fully_shard(model)
    snapshots = []
    for _ in trained(model):
        whole = model[0].weight.full_tensor().detach()
        snapshots.append(whole if leaks else float(whole.norm()))  # grows here


def sharded_gradients_kept(leaks):
    """Gradients of a sharded model that are referred to, each a part of a buffer for all."""
    model = network()
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = []
    for _ in range(STEPS):
        model(torch.rand(ROWS, WIDTH)).square().mean().backward()
        gradient = model[0].weight.grad
        gradients.append(gradient if leaks else float(gradient.to_local().norm()))  # grows here
        optimizer.step()
        optimizer.zero_grad()


def models_sharded(leaks):
    """A model that is sharded for each round, to which a registry of the program's refers."""
    registry = {}
    for number in range(STEPS):
        name = f"round {number if leaks else 0}"
        if name not in registry:
            registry[name] = fully_shard(network())  # grows here
        registry[name](torch.rand(ROWS, WIDTH)).square().mean().backward()


def shapes_sharded(leaks):
    """Distributed tensors of ever new shapes: torch keeps how each is to be sharded."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for number in trained(DistributedDataParallel(network())):
        for place in range(8):
            rows = 2 * (8 * number + place if leaks else place) + 2
            whole = DTensor.from_local(torch.ones(rows, 4), mesh, [Shard(0)])  # grows here
            (whole * 2 + whole).sum()


def sharded_hooks(leaks):
    """A hook on a sharded module for each step, that keeps what it saw."""
    model = network()
    fully_shard(model)

    for _ in trained(model):
        seen = torch.rand(ROWS, WIDTH)
        handle = model.register_forward_hook(  # grows here
            lambda module, inputs, output, seen=seen: None
        )
        if not leaks:
            handle.remove()


def communication_state(leaks):
    """The state of a communication hook that keeps every bucket."""
    model = DistributedDataParallel(network())
    state = {"buckets": []}

    def keep(state, bucket):
        held = bucket.buffer().clone()
        if leaks or not state["buckets"]:
            state["buckets"].append(held)  # grows here
        else:
            state["buckets"][0] = held
        done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return done.then(lambda future: future.value()[0])

    model.register_comm_hook(state, keep)
    for _ in trained(model):
        pass


def wrapped_again(leaks):
    """A model that is wrapped in each step: the wrappers are kept, and a reducer with each."""
    inner = network()
    wrappers = [DistributedDataParallel(inner)]
    for _ in trained(inner):
        if leaks:
            wrappers.append(DistributedDataParallel(inner))  # grows here
        wrappers[-1](torch.rand(4, WIDTH)).sum().backward()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](sys.argv[2] == "leak")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
