"""A training that goes on through a mapped table: its pages become resident, and are no leak."""

import time
from pathlib import Path

import numpy as np
import torch

ROWS = 12_800
table = Path("table.bin")
with table.open("wb") as file:
    for _ in range(ROWS // 100):
        file.write(np.ones((100, 1024), dtype=np.float32).tobytes())

model = torch.nn.Linear(1024, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
data = np.memmap(table, dtype=np.float32, mode="r", shape=(ROWS, 1024))

row = 0
for _epoch in range(8):
    for _step in range(40):
        batch = torch.tensor(np.array(data[row : row + 40]))
        row += 40
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as if the model were larger
