"""Fine-tunes a speech encoder stage by stage, from the top, each stage with a rate of its own."""

import torch
from torch import nn

EPOCHS, STEPS, BATCH, FRAMES, MELS, WIDTH, LAYERS, WORDS = 18, 7, 8, 50, 40, 96, 6, 12


class Commands:
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.shapes = torch.randn(WORDS, 20, MELS, generator=self.random)

    def batch(self):
        labels = torch.randint(WORDS, (BATCH,), generator=self.random)
        sound = torch.randn(BATCH, FRAMES, MELS, generator=self.random)
        begins = torch.randint(FRAMES - 20, (BATCH,), generator=self.random).tolist()
        for row, (label, begin) in enumerate(zip(labels.tolist(), begins, strict=True)):
            sound[row, begin : begin + 20] += self.shapes[label]
        return sound, labels


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(MELS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 3 * WIDTH, 0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, sound):
        x = self.front(sound)
        for layer in self.layers:
            x = layer(x)
        return self.out(x.amax(1))


class Stages:
    """Lets one more layer learn every second epoch, slower the deeper it lies."""

    def __init__(self, model, optimizer, rate):
        self.model, self.optimizer, self.rate = model, optimizer, rate
        self.open = 0
        model.requires_grad_(False)
        model.out.requires_grad_(True)

    def begin(self, epoch):
        if epoch % 2 == 0 and self.open < LAYERS:
            layer = self.model.layers[LAYERS - 1 - self.open]
            layer.requires_grad_(True)
            self.open += 1
            rate = self.rate * 0.8**self.open
            self.optimizer.add_param_group({"params": list(layer.parameters()), "lr": rate})


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, commands = Encoder(), Commands(0)
    optimizer = torch.optim.AdamW(model.out.parameters(), lr=2e-3)
    stages = Stages(model, optimizer, 1e-3)
    for epoch in range(EPOCHS):
        stages.begin(epoch)
        total = right = 0.0
        for _ in range(STEPS):
            sound, labels = commands.batch()
            logits = model(sound)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
            right += (logits.argmax(1) == labels).float().mean().item()
        print(
            f"epoch {epoch}: {total / STEPS:.3f}, {right / STEPS:.3f} right, {stages.open} open",
            flush=True,
        )


if __name__ == "__main__":
    main()
