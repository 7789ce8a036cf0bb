"""A gradient hook weighs by what the decoder made of its tensor, and is removed after backward."""

import torch
from torch import nn

EPOCHS = 6


def emphasise(code, decoded):
    def weigh(grad):
        return grad * (1 + decoded.detach().std())

    return code.register_hook(weigh)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    encoder, decoder = nn.Linear(96, 24), nn.Linear(24, 768)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.05)
    signals = torch.randn(1280, 96)
    loader = torch.utils.data.DataLoader(signals, batch_size=64, shuffle=True)
    for epoch in range(EPOCHS):
        for signal in loader:
            code = torch.tanh(encoder(signal))
            decoded = decoder(code)
            handle = emphasise(code, decoded)
            loss = (decoded - signal.repeat(1, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            handle.remove()
            optimizer.step()
        print(epoch, round(loss.item(), 3), flush=True)


main()
