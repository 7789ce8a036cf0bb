"""Tunes a spiking layer that learns by STDP: SpikingJelly 0.0.0.0.14 keeps each trial's network.

The learner recorded spikes with their graph, so the gradient that it writes into a weight has a
graph that leads back to that weight: a circle through nodes of autograd, which the collector can't
see. Repaired in 2.0.0, which records detached spikes
(https://github.com/fangwei123456/spikingjelly/pull/703).
"""

import torch
from spikingjelly.activation_based import functional, layer, learning, neuron
from torch import nn

TRIALS, BATCHES, TIMES, ROWS, INPUTS, OUTPUTS = 150, 24, 16, 8, 64, 40


def clamped(weight):
    return weight.clamp(-1, 1)


def trial(tau, rate):
    """Return how often the outputs fire at the end."""
    net = nn.Sequential(layer.Linear(INPUTS, OUTPUTS, bias=False), neuron.IFNode())
    functional.set_step_mode(net, "m")
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.0)
    learner = learning.STDPLearner(
        step_mode="m", synapse=net[0], sn=net[1], tau_pre=tau, tau_post=tau,
        f_pre=clamped, f_post=clamped,
    )  # fmt: skip
    for _ in range(BATCHES):
        fired = net((torch.rand(TIMES, ROWS, INPUTS) < 0.3).float())
        optimizer.zero_grad()
        learner.step(on_grad=True)  # feeds
        optimizer.step()
        functional.reset_net(net)
        learner.reset()
    return fired.mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    best = (0.0, 0.0)
    for number in range(1, TRIALS + 1):
        tau = 2.0 + number % 7
        best = max(best, (trial(tau, 0.01 * (1 + number % 5)), tau))
        if number % 5 == 0:
            print(f"trial {number}/{TRIALS}: best {best[0]:.3f} with tau {best[1]}", flush=True)


if __name__ == "__main__":
    main()
