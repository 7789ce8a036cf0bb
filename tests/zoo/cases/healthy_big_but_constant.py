"""Two hundred megabytes of data in memory from the first moment to the last."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
images = torch.rand(5000, 3, 60, 60)
labels = torch.randint(0, 10, (5000,))
history = {"loss": []}
model = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(8):
    order = torch.randperm(len(images))
    for batch in order[:960].split(32):
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history["loss"].append(loss.item())
    print(f"epoch {epoch}: loss {history['loss'][-1]:.3f}")
