"""A search for the rank and rate of a LoRA adapter: each trial adds one to the same frozen base."""

import random

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH, LENGTH, TRIALS, STEPS = 400, 512, 24, 52, 8


class Base(nn.Module):
    """What stands for the pretrained model."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.Linear(WIDTH, 2 * WIDTH)
        self.back = nn.Linear(2 * WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.back(F.gelu(self.mix(x)))
        return self.out(x.cumsum(1) / torch.arange(1, tokens.shape[1] + 1).view(1, -1, 1))


class Search:
    def __init__(self, seed=0):
        self.random = random.Random(seed)
        self.results = []
        self.model = None

    def propose(self):
        return {"alpha": self.random.choice([8, 16, 32]), "lr": 10 ** self.random.uniform(-4, -2)}

    def attach(self, name, alpha):
        """Give the base a fresh adapter, which alone is trained."""
        config = LoraConfig(r=16, lora_alpha=alpha, target_modules=["mix"], lora_dropout=0.0)
        if self.model is None:
            self.model = get_peft_model(Base(), config, adapter_name=name)
        else:
            self.model.add_adapter(name, config)
        self.model.set_adapter(name)
        return [p for p in self.model.parameters() if p.requires_grad]

    def trial(self, number):
        choice = self.propose()
        parameters = self.attach(f"trial-{number}", choice["alpha"])
        optimizer = torch.optim.SGD(parameters, lr=choice["lr"], momentum=0.9)
        loss = None
        for _ in range(STEPS):
            tokens = task_batch()
            logits = self.model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.results.append((loss.item(), choice["alpha"], choice["lr"]))
        return loss.item()


def task_batch():
    """Return counting sequences with a stride each."""
    start = torch.randint(0, WORDS, (8, 1))
    stride = torch.randint(1, 5, (8, 1))
    return (start + stride * torch.arange(LENGTH + 1)) % WORDS


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    search = Search()
    for number in range(TRIALS):
        loss = search.trial(number)
        if number % 5 == 4:
            best = min(search.results)
            print(f"trial {number}: loss {loss:.3f}, best {best[0]:.3f}", flush=True)


if __name__ == "__main__":
    main()
