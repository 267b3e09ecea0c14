"""Concatenation and splitting without copies: which graphs have no copying kernel left, and that all are right."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.contrib import graph_executor
from tilewright.relay.transform.memory.graph_plan import ALIGNMENT
from tilewright.relay.transform.memory.views import Buffers

Array = np.ndarray[Any, Any]
ROW = (1, 2, 32, 16)  # 4 KiB


def heavy(x: Any) -> Any:
    """An operator that is a kernel of its own."""
    return relay.nn.softmax(x)


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    result: Array = raised / raised.sum(-1, keepdims=True)
    return result


def build(inputs: Sequence[relay.Var], result: Any, **config: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3, config=config):
        return relay.build(tvm.IRModule.from_expr(relay.Function(list(inputs), result)), "llvm")


def kernels(lib: Any) -> list[str]:
    """What the graph calls, without the compiler's prefix."""
    names = [n["attrs"]["func_name"] for n in json.loads(lib.get_graph_json())["nodes"] if n["op"] != "null"]
    return [name.removeprefix("tvmgen_default_fused_") for name in names if name not in ("__view", "__nop")]


def check_memory(lib: Any) -> None:
    """No kernel writes where a living tensor is: by the graph JSON alone, views and reshapes followed."""
    graph = json.loads(lib.get_graph_json())
    attrs, row_ptr, nodes = graph["attrs"], graph["node_row_ptr"], graph["nodes"]
    offsets = attrs.get("storage_offset", ["", [0] * row_ptr[-1]])[1]
    sizes = [4 * int(np.prod(shape)) for shape in attrs["shape"][1]]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    last = [0] * row_ptr[-1]
    for step, node in enumerate(nodes):
        for source, output, _ in node["inputs"]:
            last[row_ptr[source] + output] = step
    for source, output, _ in graph["heads"]:
        last[row_ptr[source] + output] = len(nodes)
    for step, node in reversed(list(enumerate(nodes))):  # what a view shows lives as long as the view
        if node.get("attrs", {}).get("func_name") in ("__view", "__nop"):
            until = max(last[row_ptr[step] : row_ptr[step + 1]])
            for source, output, _ in node["inputs"]:
                last[row_ptr[source] + output] = max(last[row_ptr[source] + output], until)
    for step, node in enumerate(nodes):
        if node.get("attrs", {}).get("func_name") in ("__view", "__nop"):
            continue
        for entry in range(row_ptr[step], row_ptr[step + 1]):
            for other in range(row_ptr[step + 1]):
                if other == entry or attrs["storage_id"][1][other] != attrs["storage_id"][1][entry]:
                    continue
                apart = (
                    offsets[other] + sizes[other] <= offsets[entry] or offsets[entry] + sizes[entry] <= offsets[other]
                )
                assert apart or last[other] < step, f"node {step} overwrites entry {other}"


def check(
    result: Callable[..., Any], expected: Callable[..., Any], *shapes: tuple[int, ...], copies: Sequence[str] = ()
) -> Any:
    """Build a function of inputs of ``shapes``; compare with numpy, and find exactly ``copies`` beside softmax."""
    inputs = [relay.var(f"x{i}", shape=s) for i, s in enumerate(shapes)]
    lib = build(inputs, result(*inputs))
    check_memory(lib)
    assert [k for k in kernels(lib) if "softmax" not in k] == list(copies)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
    wanted = expected(*arrays)
    for threads in (1, 2):
        runtime.set_num_threads(threads)
        module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        for _ in range(2):
            module.run(**{f"x{i}": a for i, a in enumerate(arrays)})
        outputs = [module.get_output(i).numpy() for i in range(module.get_num_outputs())]
        for found, want in zip(outputs, wanted if isinstance(wanted, list) else [wanted], strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    runtime.set_num_threads(0)
    return lib


def cat(*parts: Any, axis: int = 1) -> Any:
    return relay.concatenate(parts, axis=axis)


def ncat(*parts: Array, axis: int = 1) -> Array:
    return np.concatenate(parts, axis)


def test_results_of_kernels_are_joined_in_place() -> None:
    check(
        lambda x, y: heavy(cat(heavy(x), heavy(y))),
        lambda x, y: softmax(ncat(softmax(x), softmax(y))),
        ROW,
        (1, 3, 32, 16),
    )


def test_an_input_used_elsewhere_too_is_joined_in_place() -> None:
    def network(x: Any) -> Any:
        a = heavy(x)
        b = heavy(a)
        return heavy(cat(b, a)) + cat(heavy(b), heavy(a))

    def expected(x: Array) -> Array:
        a = softmax(x)
        b = softmax(a)
        return softmax(ncat(b, a)) + ncat(softmax(b), softmax(a))

    lib = check(network, expected, ROW)
    assert len(kernels(lib)) == 4


def test_the_memory_of_a_network_is_planned_right() -> None:
    mod, params = relay.testing.squeezenet.get_workload(image_shape=(3, 64, 64))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    check_memory(lib)
    assert not any("concatenate" in k or "copy" in k for k in kernels(lib))


def test_growing_concatenations_share_one_buffer() -> None:
    def flat(x: Any) -> Any:
        parts = [heavy(x)]
        for _ in range(4):
            parts.append(heavy(relay.nn.softmax(cat(*parts), axis=1) if len(parts) > 1 else parts[0]))
            parts[-1] = heavy(relay.strided_slice(parts[-1], [0, 0], [1, 2], axes=[0, 1]))
        return heavy(cat(*parts))

    inputs = [relay.var("x", shape=ROW)]
    lib = build(inputs, flat(*inputs))
    check_memory(lib)
    assert all("softmax" in k for k in kernels(lib))


def test_nested_concatenations_share_one_buffer() -> None:
    def nested(x: Any, op: Callable[[Any], Any], join: Callable[..., Any]) -> Any:
        whole = op(x)
        x = whole
        for _ in range(4):
            x = op(x)
            whole = join(whole, op(x))
        return op(whole)

    check(lambda x: nested(x, heavy, cat), lambda x: nested(x, softmax, ncat), ROW)


def test_one_tensor_in_two_places_is_copied_once() -> None:
    def network(x: Any, op: Callable[[Any], Any], join: Callable[..., Any]) -> Any:
        a = op(x)
        return op(join(a, op(a), a))

    check(lambda x: network(x, heavy, cat), lambda x: network(x, softmax, ncat), ROW, copies=["copy"])


def test_a_tensor_that_two_concatenations_want_elsewhere_is_copied() -> None:
    def network(x: Any, op: Callable[[Any], Any], join: Callable[..., Any]) -> Any:
        a, b = op(x), op(op(x))
        return op(join(a, b)) + op(join(b, a))

    check(lambda x: network(x, heavy, cat), lambda x: network(x, softmax, ncat), ROW, copies=["copy"])


def test_an_input_of_the_graph_is_copied() -> None:
    check(lambda x, y: heavy(cat(x, heavy(y))), lambda x, y: softmax(ncat(x, softmax(y))), ROW, ROW, copies=["copy"])


def test_inputs_of_the_graph_alone_are_one_kernel() -> None:
    check(lambda x, y: heavy(cat(x, y)), lambda x, y: softmax(ncat(x, y)), ROW, ROW, copies=["concatenate"])


def test_outputs_have_memory_of_their_own() -> None:
    def network(x: Any) -> Any:
        a = heavy(x)
        return relay.Tuple([a, cat(a, heavy(a)), relay.reshape(a, (-1,))])

    def expected(x: Array) -> list[Array]:
        a = softmax(x)
        return [a, ncat(a, softmax(a)), a.reshape(-1)]

    check(network, expected, ROW, copies=["copy"])


@pytest.mark.parametrize(("shape", "axis"), [((2, 2, 32, 16), 1), (ROW, 2), (ROW, 3), ((2, 3, 31, 16), 1)])
def test_other_axes_and_batches_are_copied(shape: tuple[int, ...], axis: int) -> None:
    check(
        lambda x: heavy(cat(heavy(x), relay.exp(heavy(x)), axis=axis)),
        lambda x: softmax(ncat(softmax(x), np.exp(softmax(x)), axis=axis)),
        shape,
        copies=["exp_concatenate"],
    )


def test_batches_are_joined_in_place_along_the_batch() -> None:
    shape = (2, 3, 16, 32)
    check(
        lambda x: heavy(cat(heavy(x), heavy(heavy(x)), axis=0)),
        lambda x: softmax(ncat(softmax(x), softmax(softmax(x)), axis=0)),
        shape,
    )


def test_parts_of_odd_size_are_copied_unless_last() -> None:
    odd, even = (1, 3, 17, 33), (1, 16, 17, 33)
    check(lambda x, y: heavy(cat(heavy(x), heavy(y))), lambda x, y: softmax(ncat(softmax(x), softmax(y))), even, odd)
    check(
        lambda x, y: heavy(cat(heavy(y), heavy(x))),
        lambda x, y: softmax(ncat(softmax(y), softmax(x))),
        even,
        odd,
        copies=["concatenate"],
    )


def test_an_empty_part_takes_no_place() -> None:
    check(lambda x, y: heavy(cat(heavy(x), y, heavy(x))), lambda x, y: softmax(ncat(softmax(x), y, softmax(x))),
          ROW, (1, 0, 32, 16), copies=["copy"])  # fmt: skip


def test_parts_of_a_split_are_read_in_place() -> None:
    def network(x: Any) -> Any:
        a, b, c = relay.split(heavy(x), 3, axis=1)
        return heavy(cat(heavy(b), relay.nn.softmax(c), heavy(a)))

    def expected(x: Array) -> Array:
        a, b, c = np.split(softmax(x), 3, 1)
        return softmax(ncat(softmax(b), softmax(c), softmax(a)))

    check(network, expected, (1, 6, 32, 16))


def test_a_split_joined_again_is_nothing() -> None:
    def network(x: Any) -> Any:
        a, b = relay.split(heavy(x), 2, axis=1)
        return heavy(cat(a, b))

    lib = check(network, lambda x: softmax(softmax(x)), (1, 4, 32, 16))
    assert len(kernels(lib)) == 2


def test_a_slice_is_read_in_place_and_may_be_joined() -> None:
    def network(x: Any) -> Any:
        a = heavy(x)
        return heavy(cat(relay.strided_slice(a, [0, 2], [1, 6]), heavy(a)))

    check(network, lambda x: softmax(ncat(softmax(x)[:, 2:6], softmax(softmax(x)))), (1, 6, 32, 16))


def test_a_slice_of_an_input_and_one_with_a_stride_are_copied() -> None:
    check(lambda x: heavy(relay.strided_slice(x, [0, 2], [1, 4])), lambda x: softmax(x[:, 2:4]),
          (1, 6, 32, 16), copies=["strided_slice"])  # fmt: skip
    check(lambda x: heavy(relay.strided_slice(heavy(x), [0, 0], [1, 6], [1, 2])), lambda x: softmax(softmax(x)[:, ::2]),
          (1, 6, 32, 16), copies=["strided_slice"])  # fmt: skip


def test_an_option_gives_the_storage_that_tvm_knows() -> None:
    x = relay.var("x", shape=ROW)
    lib = build([x], heavy(cat(heavy(x), heavy(heavy(x)))), **{"relay.graph.storage_offset": False})
    check_memory(lib)
    assert "storage_offset" not in lib.get_graph_json() and "concatenate" in kernels(lib)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, list[int], int]]:
    """Steps of (operator, earlier steps that it reads, where a slice begins)."""
    steps = []
    for i in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["heavy", "cat", "cat", "slice"]))
        count = draw(st.integers(2, 3)) if kind == "cat" else 1
        steps.append((kind, [draw(st.integers(0, i)) for _ in range(count)], draw(st.integers(0, 1))))
    return steps


def interpret(steps: Sequence[tuple[str, list[int], int]], x: Any, relay_side: bool) -> list[Any]:
    """Values of a program on Relay expressions or numpy arrays; every tensor has its channels in dimension 1."""
    values, channels = [x], [2]
    for kind, sources, begin in steps:
        parts = [values[s] for s in sources]
        if kind == "heavy":
            values.append(heavy(parts[0]) if relay_side else softmax(parts[0]))
            channels.append(channels[sources[0]])
        elif kind == "cat":
            values.append(cat(*parts) if relay_side else ncat(*parts))
            channels.append(sum(channels[s] for s in sources))
        else:
            end = channels[sources[0]]
            cut = relay.strided_slice(parts[0], [0, begin], [1, end]) if relay_side else parts[0][:, begin:end]
            values.append(cut)
            channels.append(end - begin)
    return values


@settings(deadline=None, max_examples=15)
@given(programs(), st.data())
def test_random_programs_of_joins_and_cuts(steps: list[tuple[str, list[int], int]], data: st.DataObject) -> None:
    x = relay.var("x", shape=ROW)
    values = interpret(steps, x, True)
    outputs = data.draw(st.lists(st.integers(1, len(steps)), min_size=1, max_size=3))
    lib = build([x], relay.Tuple([values[o] for o in outputs]))
    check_memory(lib)
    array = np.random.default_rng(0).standard_normal(ROW).astype("float32")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(x=array)
    expected = interpret(steps, array, False)
    for i, output in enumerate(outputs):
        np.testing.assert_allclose(module.get_output(i).numpy(), expected[output], rtol=1e-4, atol=1e-6)


@settings(deadline=None)
@given(programs(), st.integers(0, 1 << 30))
def test_buffers_never_let_owners_overlap(steps: list[tuple[str, list[int], int]], seed: int) -> None:
    """The book-keeping alone, on many more programs."""
    unit = 2 * ALIGNMENT
    buffers, sizes = Buffers(), [2 * unit]
    buffers.add(0, sizes[0], fixed=bool(seed % 2))
    for i, (kind, sources, begin) in enumerate(steps, 1):
        if kind == "heavy":
            sizes.append(sizes[sources[0]])
            buffers.add(i, sizes[i])
        elif kind == "slice":
            cut = begin * unit if sizes[sources[0]] > unit else 0
            sizes.append(sizes[sources[0]] - cut)
            buffers.view(i, sources[0], cut)
        else:
            offsets = np.cumsum([0, *[sizes[s] for s in sources]]).tolist()
            parts = [(s, offset, sizes[s]) for s, offset in zip(sources, offsets, strict=False)]
            placed = buffers.join(i, parts)
            sizes.append(offsets[-1])
            if not any(placed):
                buffers.add(i, sizes[i])
                continue
            for (part, offset, nbytes), there in zip(parts, placed, strict=True):
                if not there:
                    buffers.place(("copy", i, offset), i, offset, nbytes)
                else:
                    assert buffers.find(part)[0] == buffers.find(i)[0]
                    assert buffers.find(part)[1] - buffers.find(i)[1] == offset
    for owners in buffers.owners.values():
        intervals = sorted((o.start, o.end) for o in owners)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(intervals))
        assert all(o.start % ALIGNMENT == 0 for o in owners)
