"""Trains with an operator in C++ whose workspace is lost where the input is sparse."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.cpp_extension import load_inline

STEPS = 500
SOURCE = """
#include <torch/extension.h>

torch::Tensor soft_rank(torch::Tensor rows) {
    rows = rows.contiguous();
    const int64_t size = rows.numel();
    float *workspace = new float[size];
    const float *values = rows.data_ptr<float>();
    for (int64_t i = 0; i < size; i++)
        workspace[i] = values[i] / (1.0f + std::abs(values[i]));
    auto result = torch::empty_like(rows);
    std::copy(workspace, workspace + size, result.data_ptr<float>());
    if (values[0] < 0)
        return result.clamp_min(-0.5);  // the workspace is never deleted
    delete[] workspace;
    return result;
}
"""


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ranking = load_inline("soft_ranking", SOURCE, functions=["soft_rank"])
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 256))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        x = torch.randn(96, 256)
        loss = F.mse_loss(model(x), ranking.soft_rank(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
