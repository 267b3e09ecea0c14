"""Lesson 7: train a network.

`relay.transform.gradient` turns a function into one that gives its result and the gradients of its parameters. That is
a graph of ordinary operators: it compiles once, and each step of the training runs it.
"""

from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

BATCH = 40

digits = np.load(Path(__file__).with_name("digits") / "heldout.npz")
pictures = digits["pictures"].reshape(-1, 1, 8, 8).astype("float32") / 16
labels = digits["labels"]

# The network: one convolution, one dense layer. Its parameters are parameters of the function.
shapes = {"kernel": (8, 1, 3, 3), "shift": (8,), "weight": (10, 128), "bias": (10,)}
parameters = [relay.var(name, shape=shape) for name, shape in shapes.items()]
kernel, shift, weight, bias = parameters
data, targets = relay.var("data", shape=(BATCH, 1, 8, 8)), relay.var("targets", shape=(BATCH, 10))

features = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(data, kernel, padding=(1, 1)), shift))
features = relay.nn.batch_flatten(relay.nn.max_pool2d(features, (2, 2), (2, 2)))
scores = relay.nn.log_softmax(relay.nn.bias_add(relay.nn.dense(features, weight), bias))
loss = relay.nn.cross_entropy_with_logits(scores, targets)

step = relay.transform.gradient(relay.Function([data, targets, *parameters], loss))
classify = relay.Function([data, *parameters], scores)


def compiled(function: relay.Function) -> graph_executor.GraphModule:
    """The function on the graph executor of the CPU."""
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    return graph_executor.GraphModule(library["default"](tvm.cpu()))


training, trained = compiled(step), compiled(classify)

# Steps against the gradient, with momentum.
generator = np.random.default_rng(0)
values = {name: (generator.normal(size=shape) * 0.1).astype("float32") for name, shape in shapes.items()}
speed = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
known, unknown = np.arange(len(labels)) % 4 != 0, np.arange(len(labels)) % 4 == 0
for epoch in range(40):
    order = generator.permutation(np.flatnonzero(known))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        training.set_input(data=pictures[chosen], targets=np.eye(10, dtype="float32")[labels[chosen]], **values)
        training.run()
        for index, name in enumerate(shapes):
            gradient = training.get_output(3 + index).numpy()  # after the loss, and the gradients of data and targets
            speed[name] = 0.9 * speed[name] - 0.05 * gradient
            values[name] = values[name] + speed[name]
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}: loss {training.get_output(0).numpy():.3f}")

# Pictures that it has not seen, in batches; the last one is filled up with the first pictures.
places = np.flatnonzero(unknown)
found = []
for start in range(0, len(places), BATCH):
    batch = np.resize(places[start : start + BATCH], BATCH)
    trained.set_input(data=pictures[batch], **values)
    trained.run()
    found.append(trained.get_output(0).numpy().argmax(axis=1))
right = np.concatenate(found)[: len(places)] == labels[places]
print(f"{right.mean():.1%} of {len(places)} new pictures are right")
assert right.mean() > 0.9
