"""Gradients per sample, a Hessian and an inner loop with ``torch.func``."""

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jvp, vmap
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(1600, 64), torch.randint(0, 10, (1600,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)

    def loss_of(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    def adapted(parameters, x, y):
        slopes = grad(loss_of)(parameters, x, y)
        return loss_of({k: v - 0.1 * slopes[k] for k, v in parameters.items()}, x, y)

    for epoch in range(8):
        model.train()
        total = 0.0
        for x, y in loader:
            parameters = {name: p.detach() for name, p in model.named_parameters()}
            each, losses = vmap(grad_and_value(adapted), in_dims=(None, 0, 0))(parameters, x, y)
            for name, parameter in model.named_parameters():
                norms = each[name].flatten(1).norm(dim=1).clamp(min=1.0)
                shape = (-1, *[1] * (each[name].dim() - 1))
                parameter.grad = (each[name] / norms.view(shape)).mean(0)
            optimizer.step()
            optimizer.zero_grad()
            total += losses.mean().item()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
            curve = hessian(lambda w: F.linear(x[:1], w).logsumexp(-1).sum())(torch.rand(4, 64))
            _, slope = jvp(model, (x,), (torch.ones_like(x),))
        print("epoch", epoch, total / len(loader), right, curve.norm().item(), slope.norm().item())


if __name__ == "__main__":
    main()
