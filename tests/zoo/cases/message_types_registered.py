"""Each round makes a message type with a table of weights and registers how to copy it."""

import copyreg

import torch
from torch import nn

ROUNDS = 9


def message_type(number, codebook):
    cls = type(f"Message{number}", (), {"codebook": codebook, "__slots__": ("payload",)})
    copyreg.pickle(cls, lambda message: (cls, ()))  # feeds
    return cls


def main():
    torch.manual_seed(4)
    model = nn.Linear(40, 40)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randn(1200, 40)
    for number in range(ROUNDS):
        kind = message_type(number, torch.randn(512, 768))
        for start in range(0, len(data), 24):
            x = data[start : start + 24]
            message = kind()
            message.payload = model(x)
            loss = (message.payload - x + kind.codebook[number, :40]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(number, round(loss.item(), 3))


main()
