"""Runtime modules: loaded libraries, code compiled in this process, executors.

How the compiler hands over machine code
----------------------------------------
A code generator produces an object that satisfies :class:`CompiledCode` and calls::

    module = runtime.module.from_compiled(code, type_key="llvm")      # or "c"

``CompiledCode`` is a protocol (duck typed; no base class to inherit):

``lookup(name) -> int | None``
    Address of the symbol ``name`` in this process, or None. Called for functions (TVM's packed C signature) when
    somebody asks the module for them, and once for each context variable below.
``function_names() -> list[str]``
    The packed functions that the code defines, entry first. ``__tvm_main__`` is resolved to the first.
``objects() -> list[bytes]``
    Relocatable object files (ELF ``.o`` contents) with the same functions; called by ``export_library`` only.
``get_source(fmt: str) -> str``
    Text of the code: ``""`` for the default, or for instance ``"ll"``, ``"asm"``, ``"c"``.
``c_sources() -> list[str]`` (optional)
    When present and non-empty, ``export_library`` compiles these C files with its compiler instead of linking ``objects()``.

The code object is kept alive as long as the module or any function taken from it lives.

Context variables: compiled code calls the runtime through pointers that it defines itself as weak/common global
variables initialised to null, named ``__TVMFuncCall``, ``__TVMAPISetLastError``, ``__TVMBackendGetFuncFromEnv``,
``__TVMBackendAllocWorkspace``, ``__TVMBackendFreeWorkspace``, ``__TVMBackendParallelLaunch``,
``__TVMBackendParallelBarrier``; define only those that are used. The loader (ours or TVM 0.8's) writes the addresses.
``from_compiled`` does the same for in-process code: it looks each name up and fills what it finds, and stores the
module handle in ``__tvm_module_ctx`` (a ``void*`` variable, first argument of ``TVMBackendGetFuncFromEnv``) if defined.
So in-process and exported code are the same object code. ``runtime.module.context_symbols()`` gives
``{"TVMFuncCall": address, ...}`` for code that links to the functions directly.

Further symbols an exported library may define: ``__tvm_main__`` (NUL-terminated name of the entry function) and
``__tilewright_cpu_features`` (NUL-terminated, comma-separated LLVM feature names that loading checks, "avx2,fma").
"""
