"""A curriculum: sequences get longer with every epoch, and so does what a step needs at once."""

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS = 8, 10


class LanguageModel(nn.Module):
    def __init__(self, words=400, width=96):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def batches(length):
    for _ in range(STEPS):
        tokens = torch.randint(0, 400, (16, length + 1))
        yield tokens[:, :-1], tokens[:, 1:]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = LanguageModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for tokens, following in batches(16 + 8 * epoch):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: length {16 + 8 * epoch}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
