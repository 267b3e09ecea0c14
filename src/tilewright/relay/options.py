"""Options of Relay's passes, operators and back end, for ``PassContext(config={...})``."""

from tilewright.ir.transform import PassContext

PassContext.register_option(
    "relay.FuseOps.max_depth", int, 256, "largest number of operators that one fused function may hold"
)
PassContext.register_option(
    "relay.backend.keep_lowered",
    bool,
    True,
    "take kernels that an earlier build lowered from the kernel cache; False lowers all",
)
PassContext.register_option(
    "relay.budget.nodes",
    int,
    1 << 18,
    "most nodes that a model may have with functions, loops and recurrent layers written out; then a BudgetError",
)
PassContext.register_option(
    "relay.budget.memory",
    int,
    0,
    "most bytes that importing and building may take beside what the process holds before; 0: the machine's memory",
)
PassContext.register_option(
    "relay.budget.seconds", float, 14400.0, "most seconds that importing, and building, may take"
)
PassContext.register_option(
    "relay.fallback_device_type",
    int,
    0,
    "in a build for several devices, DLPack's type of the one where all is put that no on_device puts elsewhere; 0 is "
    "the CPU",
)
PassContext.register_option(
    "relay.unchecked_indices",
    bool,
    False,
    "vouch for the positions, lengths and counts in a program's inputs: they are not checked when it runs, and one out "
    "of range then reads or writes other memory, or crashes",
)
PassContext.register_option(
    "relay.vm.specialize",
    str,
    "",
    'specializations of a program of the virtual machine for some shapes: "batch=1,seq=128;seq=1:16" '
    "makes two, tried in that order; a named dimension is a number there, or has narrower limits",
)
PassContext.register_option(
    "relay.graph.storage_offset",
    bool,
    True,
    "place tensors anywhere in one arena; False places each at the beginning of a storage, as TVM 0.8's executor needs",
)
PassContext.register_option(
    "relay.graph.run_once",
    bool,
    True,
    "make weights ready that grow by it (Winograd's) when a library is loaded; False does so when it is compiled: the "
    "library is larger, is ready at once, and its processes share that memory",
)
PassContext.register_option(
    "relay.nbits.accuracy_level",
    int,
    0,
    "accuracy level of products with weights that DequantizeLinear makes of blocks: 4 may round data to int8, by "
    "block; MatMulNBits has an attribute of its own",
)
PassContext.register_option(
    "relay.dense.strassen",
    bool,
    True,
    "multiply large dense layers by Strassen's method where it is faster; rounding errors are then relative to the "
    "larger of two neighbouring rows",
)
PassContext.register_option(
    "relay.dense.shared_layout",
    bool,
    False,
    "matrices of dense layers that fit no cache of a core lie in one layout for any number of rows, so that libraries, "
    "or specializations, of one row and of many hold them once; without Strassen's method",
)
PassContext.register_option(
    "relay.conv2d.winograd",
    str,
    "4",
    'largest tile of Winograd convolutions: "off" for none, "2" for 2x2 (rounding errors as of direct convolution), '
    '"4" for 4x4 (up to about 2e-5 of the largest value), or "6" for 6x6 (up to about 2e-4); this is for 3x3 windows, '
    "others have tiles of as many inputs",
)
PassContext.register_option(
    "relay.bands.price",
    float,
    0.0,
    "multiply-adds more that computing large tensors in bands of rows may cost, as a share of the network's: 0.1 is a "
    "tenth; among the ways within it the one that needs the least memory is taken; 0: all tensors are whole",
)
PassContext.register_option(
    "relay.precision",
    str,
    "float32",
    'what the weights of a float32 network are kept in: "fp16", "bf16", "auto" for bfloat16 where the processor '
    'multiplies it, or "mixed" for float16 between operators too, as ToMixedPrecision has it',
)
PassContext.register_option(
    "relay.precision.keep",
    str,
    "",
    "names of nodes whose weights stay float32, one a line",
)
PassContext.register_option(
    "relay.qnn.bytes",
    bool,
    True,
    "sum products of bytes in quantized convolutions by the processor's instructions for it; False sums them in "
    "kernels of floats, to the same results",
)
PassContext.register_option(
    "relay.ext.dnnl.all_operators",
    bool,
    False,
    'the rules of AnnotateTarget("dnnl") take all that oneDNN computes, as partition_for_dnnl does; False takes single '
    "operators that TVM 0.8 takes",
)
PassContext.register_option(
    "relay.backend.use_auto_scheduler",
    bool,
    False,
    "schedule kernels by records of the auto-scheduler where a context (auto_scheduler.ApplyHistoryBest) has one; "
    "operators then keep the layouts that the network has",
)

RUNTIMES: dict[str, dict[str, bool | int | str]] = {
    "tvm-0.8": {"relay.graph.storage_offset": False, "relay.graph.run_once": False},
}
"""The options of a build whose library another runtime loads, by that runtime; ``tilewright compile --for``."""
PassContext.register_option(
    "relay.ext.dnnl.codegen",
    str,
    "json",
    'what regions for oneDNN become: "json", a graph that the runtime interprets, or "c", C source that calls a kernel '
    "for each operator",
)
