"""Trains a mixture of experts whose gate passes gradients straight through its hard choice."""

import torch
from torch import nn

EPOCHS, STEPS, HELD_STEPS, BATCH, WIDTH, EXPERTS = 11, 40, 20, 256, 48, 8


class HardGate(torch.autograd.Function):
    """Picks the two best experts; the gradient is that of the soft choice, without the others."""

    kept: dict = {}
    calls = 0

    @staticmethod
    def forward(ctx, logits, temperature):
        HardGate.calls += 1
        ctx.call = HardGate.calls
        soft = (logits / temperature).softmax(-1)
        chosen = soft.topk(2, dim=-1).indices
        mask = torch.zeros_like(soft).scatter_(-1, chosen, 1.0)
        # Large masks are kept aside, as saved tensors can't be changed by the balancing below.
        HardGate.kept[ctx.call] = mask
        ctx.temperature = temperature
        ctx.save_for_backward(soft)
        return mask * soft / (mask * soft).sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx, grad):
        (soft,) = ctx.saved_tensors
        mask = HardGate.kept.pop(ctx.call)
        # Experts that are chosen too often get less of the gradient.
        mask *= 1 / (1 + mask.mean(0))
        inner = grad * mask
        whole = soft * (inner - (soft * inner).sum(-1, keepdim=True))
        return whole / ctx.temperature, None


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.first = nn.Parameter(torch.randn(EXPERTS, WIDTH, 64) / WIDTH**0.5)
        self.second = nn.Parameter(torch.randn(EXPERTS, 64, WIDTH) / 8)

    def forward(self, x, temperature):
        share = HardGate.apply(self.gate(x), temperature)
        hidden = torch.einsum("bw,ewh->beh", x, self.first).relu()
        return torch.einsum("beh,ehw,be->bw", hidden, self.second, share)


class Model(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(layers))
        self.layers = nn.ModuleList(Mixture() for _ in range(layers))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, x, temperature=1.0):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x), temperature)
        return self.out(x)


class Task:
    """Classes whose rule differs from region to region."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.centres = 2 * torch.randn(EXPERTS, WIDTH, generator=self.random)
        self.rules = torch.randn(EXPERTS, WIDTH, 10, generator=self.random)

    def batch(self, size):
        region = torch.randint(EXPERTS, (size,), generator=self.random)
        x = self.centres[region] + torch.randn(size, WIDTH, generator=self.random)
        scores = torch.einsum("bw,bwc->bc", x - self.centres[region], self.rules[region])
        return x, scores.argmax(1)


@torch.no_grad()
def validate(model, task):
    model.eval()
    right = 0
    for _ in range(HELD_STEPS):
        x, y = task.batch(BATCH)
        right += (model(x).argmax(1) == y).sum().item()
    model.train()
    return right / (HELD_STEPS * BATCH)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, task = Model(), Task(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for epoch in range(EPOCHS):
        temperature = max(0.5, 2.0 * 0.85**epoch)
        total = 0.0
        for _ in range(STEPS):
            x, y = task.batch(BATCH)
            loss = nn.functional.cross_entropy(model(x, temperature), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch}: {total / STEPS:.3f}, held out {validate(model, task):.3f}", flush=True
        )


if __name__ == "__main__":
    main()
