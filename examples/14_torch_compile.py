"""Lesson 14: torch.compile with Tilewright as its backend.

A model that runs as before, compiled at its first call: for inference with weights as constants, for any batch, in
training, and with an operator that stays in PyTorch.
"""

import warnings

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).eval()

# Inference: weights are packed once ("freezing"); one program serves every batch ("dynamic").
fast = torch.compile(model, backend="tilewright", dynamic=True, options={"freezing": True})
with torch.no_grad():
    for batch in (2, 8, 31):
        x = torch.randn(batch, 16)
        print(f"batch {batch:2}: largest error {(fast(x) - model(x)).abs().max().item():.1e}")

# A write to a weight is seen: the program is compiled again for the new one.
with torch.no_grad():
    model[0].weight.mul_(2)
    x = torch.randn(8, 16)
    assert torch.allclose(fast(x), model(x), atol=1e-5)

# Training: the forward and the backward graph are both compiled.
trained = torch.compile(model.train(), backend="tilewright")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data, classes = torch.randn(64, 16), torch.arange(64) % 4
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(trained(data), classes)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}")
assert losses[-1] < losses[0]


# What Tilewright does not take, such as coins that are thrown, stays in PyTorch; a warning says which and for how long.
def thinned(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor with half of its elements."""
    return torch.sin(x) * torch.bernoulli(x, 0.5)


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.compile(thinned, backend="tilewright")(torch.ones(4))
print(next(str(w.message) for w in caught if "run in PyTorch" in str(w.message)).splitlines()[1].split(";")[0].strip())
