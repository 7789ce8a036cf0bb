"""Model and step are compiled; the backend counts graphs and what is in them."""

import torch
from driving import seed, tell
from torch import nn

seed()
graphs = []


def backend(graph, inputs):
    graphs.append([node.op for node in graph.graph.nodes])
    return graph.forward


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model, backend=backend)


@torch.compile(backend=backend)
def step(x):
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for _epoch in range(3):
    model.train()
    for _ in range(4):
        step(torch.randn(8, 16))
    model.eval()
    with torch.no_grad():
        compiled(torch.ones(8, 16))
        compiled(torch.ones(4, 16))
for _number in range(12):  # more than one code object may have versions
    names = {"nn": nn}
    exec("class Own(nn.Module):\n    def forward(self, x): return x + 1", names)
    torch.compile(names["Own"](), backend=backend)(torch.ones(2))
print(len(graphs), graphs)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
tell(model)
