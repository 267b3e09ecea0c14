"""Bytecode files: what is written is TVM 0.8's format, and damaged ones end with an error."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from tilewright import ir, nd, runtime
from tilewright.runtime.bytecode import Code, Instruction, Opcode, VMFunction, read_code, write_head, write_tail
from tilewright.runtime.container import ADT
from tilewright.runtime.ndarray import numpy_view
from tilewright.runtime.vm import Executable, VirtualMachine, make_executable

I32 = (0, 32, 1)


def program(*instructions: tuple[Opcode, list[int]], registers: int = 4, params: int = 1) -> Code:
    """A program of one function."""
    names = [f"x{i}" for i in range(params)]
    body = [Instruction(opcode, fields) for opcode, fields in instructions]
    return Code([VMFunction("main", names, [1] * params, registers, body)], ["tilewright.vm.ref_write"])


def make(*instructions: tuple[Opcode, list[int]], registers: int = 4, params: int = 1) -> VirtualMachine:
    """A machine for it."""
    constant = np.array([7, 8], "int32")
    code = program(*instructions, registers=registers, params=params)
    return VirtualMachine(make_executable(code, [constant], [1], None), runtime.cpu())


def swap() -> VirtualMachine:
    """x -> (constant, x)"""
    return make((Opcode.LOAD_CONST, [0, 1]), (Opcode.ALLOC_ADT, [0, 2, 2, 1, 0]), (Opcode.RET, [2]))


def test_a_program_by_hand() -> None:
    result = swap().run(np.array([1.5], "float32"))
    assert isinstance(result, ADT) and len(result) == 2 and result.tag == 0
    assert result[0].numpy().tolist() == [7, 8] and result[-1].numpy().tolist() == [1.5]


def test_bytes_are_those_of_the_format() -> None:
    exe = make((Opcode.RET, [0]))._exec
    data, lib = exe.save()
    assert [lib] == [None]
    words = struct.unpack_from("<QQ5s", data)
    assert words == (0xD225DE2F4214151D, 5, b"0.8.1")
    # the last instruction: three numbers, the hash of opcode and field, the opcode, the register
    key = 1 ^ (0 + 0x9E3779B9 + (1 << 6) + (1 >> 2))
    assert struct.unpack("<Qqqq", data[-32:]) == (3, key, 1, 0)


def test_constants_of_a_large_library_are_used_where_it_is_mapped(compiled: runtime.Module, tmp_path: Path) -> None:
    code = program((Opcode.LOAD_CONST, [1, 1]), (Opcode.RET, [1]))
    small, large = np.arange(3, dtype="int8"), np.arange(2 << 20, dtype="int32").reshape(4, -1)
    held = runtime.ndarray.share_memory(large.T)
    path = Path(make_executable(code, [small, held], [1, 1], compiled).export_library(tmp_path / "large.so"))
    exe = Executable(runtime.load_module(path))
    first, second = (exe.mod["get_constant"](i) for i in range(2))
    np.testing.assert_array_equal(first.numpy(), small)
    np.testing.assert_array_equal(second.numpy(), large.T)
    result = VirtualMachine(exe, runtime.cpu()).run(np.zeros(1))
    np.testing.assert_array_equal(result.numpy(), large.T)
    assert any(
        str(path) in line and int(low, 16) <= second._tensor.data < int(high, 16)
        for line in Path("/proc/self/maps").read_text().splitlines()
        for low, high in [line.split()[0].split("-")]
    )


def test_the_callers_array_stays_writable_where_a_program_uses_it() -> None:
    code, mine = program((Opcode.LOAD_CONST, [0, 1]), (Opcode.RET, [1])), runtime.array(np.arange(16))
    machine = VirtualMachine(make_executable(code, [mine], [1], None), runtime.cpu())
    mine.copyfrom(np.zeros(16, "int64"))
    numpy_view(machine.run(np.zeros(1)), writable=True)[...] = 7
    assert not machine.run(np.zeros(1)).numpy().any()


def test_what_is_written_is_read() -> None:
    code = program((Opcode.GOTO, [1]), (Opcode.ALLOC_TENSOR, [0, 1, *I32, 2, 3, 5, 6]), (Opcode.RET, [3]))
    assert read_code(write_head(code), write_tail(code)) == code


def test_memory_is_taken_and_viewed() -> None:
    machine = make(
        (Opcode.LOAD_CONSTI, [24, 1]),
        (Opcode.ALLOC_STORAGE, [1, 64, *I32, 1, 2]),
        (Opcode.LOAD_CONSTI, [0, 1]),
        (Opcode.SHAPE_OF, [0, 3]),
        (Opcode.ALLOC_TENSOR_REG, [2, 1, 3, *I32, 2]),
        (Opcode.RET, [2]),
    )
    assert machine.run(np.zeros((2, 3), "float32")).shape == (2, 3)
    with pytest.raises(runtime.TVMError, match="a tensor of 28 bytes at 0 in storage of 24 bytes"):
        machine.run(np.zeros(7, "float32"))


def test_reshape_is_a_view() -> None:
    machine = make((Opcode.RESHAPE_TENSOR, [0, 1, 2]), (Opcode.RET, [2]), params=2)
    x = runtime.array(np.arange(6))
    y = machine.run(x, np.array([3, 2]))
    assert y.numpy().tolist() == [[0, 1], [2, 3], [4, 5]]
    x.copyfrom(np.zeros(6, "int64"))
    assert not y.numpy().any()
    with pytest.raises(runtime.TVMError, match=r"cannot reshape a tensor of shape \(6,\) to \(4,\)"):
        machine.run(x, np.array([4]))


@pytest.mark.parametrize(
    ("instructions", "problem"),
    [
        ([(Opcode.RET, [4])], "register 4 of 4"),
        ([(Opcode.RET, [-1])], "register -1 of 4"),
        ([(Opcode.GOTO, [1]), (Opcode.GOTO, [1])], "a jump by 1"),
        ([(Opcode.IF, [0, 0, 5, 1]), (Opcode.RET, [0])], "a jump by 5"),
        ([(Opcode.LOAD_CONST, [1, 0]), (Opcode.RET, [0])], "constant 1 of 1"),
        ([(Opcode.INVOKE, [1, 1, 0, 0]), (Opcode.RET, [0])], "function 1 of 1"),
        ([(Opcode.INVOKE, [0, 2, 0, 0, 0]), (Opcode.RET, [0])], "2 values for the 1 parameters"),
        ([(Opcode.INVOKE, [0, 3, 0, 0, 0]), (Opcode.RET, [0])], "says that 3 follow"),
        ([(Opcode.INVOKE_PACKED, [1, 1, 1, 0]), (Opcode.RET, [0])], "packed function 1 of 1"),
        ([(Opcode.MOVE, [0, 1])], "ends without a Ret"),
        ([(Opcode.MOVE, [0])], "has 1 fields, not 2"),
        ([(Opcode.ALLOC_TENSOR, [0, 0, 0, 0, 1, 0, 0]), (Opcode.RET, [0])], "no data type"),
        ([], "without instructions"),
    ],
)
def test_lies_are_found_when_it_is_loaded(instructions: list[tuple[Opcode, list[int]]], problem: str) -> None:
    with pytest.raises(runtime.TVMError, match=problem):
        make(*instructions)


@pytest.mark.parametrize(
    ("instructions", "problem"),
    [
        ([(Opcode.GET_FIELD, [0, 0, 1])], "expected a tuple"),
        ([(Opcode.ALLOC_ADT, [0, 0, 1]), (Opcode.GET_FIELD, [1, 0, 1])], "field 0 of 0"),
        ([(Opcode.INVOKE_CLOSURE, [0, 0, 1])], "expected a closure, found a tensor"),
        ([(Opcode.SHAPE_OF, [1, 2])], "expected a tensor, found nothing"),
        ([(Opcode.LOAD_CONSTI, [-1, 1]), (Opcode.ALLOC_STORAGE, [1, 64, *I32, 1, 2])], "storage of -1 bytes"),
        ([(Opcode.LOAD_CONSTI, [1 << 62, 1]), (Opcode.ALLOC_STORAGE, [1, 64, *I32, 1, 2])], "out of memory"),
        ([(Opcode.LOAD_CONSTI, [1, 1]), (Opcode.ALLOC_STORAGE, [1, 64, *I32, 9, 2])], "made without the device"),
        ([(Opcode.LOAD_CONSTI, [1, 1]), (Opcode.IF, [0, 1, 1, 1])], "expected an integer, found a tensor of another"),
        ([(Opcode.FATAL, [])], "cannot be"),
        ([(Opcode.INVOKE_PACKED, [0, 2, 0, 0, 0])], "expected a tuple"),
    ],
)
def test_lies_of_values_are_found_when_it_runs(instructions: list[tuple[Opcode, list[int]]], problem: str) -> None:
    machine = make(*instructions, (Opcode.RET, [0]))
    with pytest.raises(runtime.TVMError, match=problem):
        machine.run(np.zeros(1, "float32"))


def attempt(data: bytes | bytearray) -> None:
    """Load a program and run it a little; an error is as good as an answer."""
    with contextlib.suppress(runtime.TVMError, UnicodeDecodeError):
        machine = VirtualMachine(Executable.load_exec(data, None), runtime.cpu())
        machine.set_limits(registers=1000, calls=50)
        machine.run(np.zeros((1, 2), "int32"))


def test_damaged_bytes_never_crash() -> None:
    data = bytes(swap()._exec.save()[0])
    chance = random.Random(3)
    for _ in range(1000):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] = chance.choice((0, 1, 4, 127, 255))
        attempt(damaged[: chance.randrange(len(data))] if chance.random() < 0.3 else damaged)


def test_random_programs_never_crash() -> None:
    chance = random.Random(4)
    fields = {5: 9, 6: 7, 16: 7, 10: 4, 4: 5, 2: 4, 3: 4, 7: 5, 8: 4}
    for _ in range(2000):
        body: list[tuple[Opcode, list[int]]] = [(Opcode.LOAD_CONSTI, [chance.choice((0, 1, 64, -5)), 1])]
        for _ in range(chance.randint(1, 12)):
            opcode = Opcode(chance.randrange(20))
            count = fields.get(opcode, chance.randint(1, 4))
            values = [chance.choice((0, 0, 1, 1, 2, 3, 8, 32, 1, -1)) for _ in range(count)]
            if opcode in (Opcode.ALLOC_TENSOR, Opcode.ALLOC_TENSOR_REG, Opcode.ALLOC_STORAGE):
                at = {5: 2, 6: 3, 16: 2}[opcode]
                values[at : at + 3] = I32
            if opcode is Opcode.ALLOC_TENSOR:
                values[5] = 2
            if opcode is Opcode.ALLOC_STORAGE:
                values[5] = 1
            if opcode in (Opcode.INVOKE, Opcode.INVOKE_CLOSURE, Opcode.ALLOC_CLOSURE, Opcode.INVOKE_PACKED):
                values[1] = count - 3
            if opcode is Opcode.ALLOC_ADT:
                values[1] = count - 3
            body.append((opcode, values))
        with contextlib.suppress(runtime.TVMError):
            attempt(bytes(make(*body, (Opcode.RET, [chance.randrange(4)]))._exec.save()[0]))


def test_a_pool_keeps_no_more_than_its_bound() -> None:
    machine = make(
        (Opcode.LOAD_CONSTI, [1 << 20, 1]),
        (Opcode.ALLOC_STORAGE, [1, 64, *I32, 1, 2]),
        (Opcode.RET, [1]),
    )
    x = np.zeros(1, "float32")
    machine.run(x)
    assert machine.memory_usage()[0] >= 1 << 20
    machine.set_limits(idle_bytes=1000)
    machine.run(x)
    assert machine.memory_usage()[0] <= 1000
    naive = VirtualMachine(machine._exec, runtime.cpu(), "naive")
    naive.run(x)
    assert naive.memory_usage() == (0, 0)


def test_results_outlive_the_machine() -> None:
    machine = make(
        (Opcode.LOAD_CONSTI, [8, 1]),
        (Opcode.ALLOC_STORAGE, [1, 64, *I32, 1, 2]),
        (Opcode.LOAD_CONSTI, [0, 1]),
        (Opcode.ALLOC_TENSOR, [2, 1, *I32, 1, 3, 2]),
        (Opcode.RET, [3]),
    )
    first, second = machine.run(np.zeros(1)), machine.run(np.zeros(1))
    first.copyfrom(np.array([1, 2], "int32"))
    second.copyfrom(np.array([3, 4], "int32"))
    del machine
    assert first.numpy().tolist() == [1, 2] and second.numpy().tolist() == [3, 4]


def test_values_of_data_types_in_python() -> None:
    value = ADT(3, [np.zeros(2), ADT(4, [])])
    assert value.tag == 3 and value[1].tag == 4 and len(value[1]) == 0 and [len(v.shape) for v in value[:1]] == [1]
    with pytest.raises(IndexError, match="field 2 of 2"):
        value[2]
    arrays = ADT(0, [nd.array([1, 2]), nd.array([3])])
    assert [a.numpy().tolist() for a in arrays] == [[1, 2], [3]]


def test_shapes_and_texts() -> None:
    shape = runtime.ShapeTuple([2, np.int64(3), 0])
    assert shape == (2, 3, 0) and len(shape) == 3 and isinstance(shape, tuple)
    with pytest.raises(TypeError):
        runtime.ShapeTuple([1.5])  # type: ignore[list-item]
    text = runtime.String("xyz")
    assert isinstance(text, str) and text + "1" == "xyz1" and ir.load_json(ir.save_json(text)) == text


def test_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match="bytecode is bytes"):
        Executable.load_exec(3, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="runs an Executable"):
        VirtualMachine("net.so", runtime.cpu())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not set"):
        make((Opcode.RET, [0])).run({"x"})
