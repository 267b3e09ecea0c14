"""``Generator``: tokens from a decoder with a cache, one library for the prompt and the steps.

A decoder takes token ids, and keys and values of the tokens before them; it gives logits, and these caches with the new
tokens appended, or written to caches of a known length. Caches stay in the virtual machine: results of one step become
inputs of the next without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .device import cpu
from .error import TVMError
from .interface import Interface, TensorInfo
from .model import Model, load
from .ndarray import array, numpy_dtype, numpy_view
from .vm import Executable, VirtualMachine, with_capacity

Array = np.ndarray[Any, Any]

_IDS = ("input_ids", "ids", "tokens", "inputs_ids")
_MASK, _PLACES, _ORDER = "attention_mask", "position_ids", "cache_position"


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen of logits.

    Args:
        temperature: by which logits are divided; 0 takes the most likely token.
        top_k: only so many of the most likely tokens; 0 for all.
        top_p: only the most likely tokens whose probabilities sum to so much.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}: the first two are 0 or more, "
                "the third above 0 and at most 1"
            )

    def choose(self, logits: Array, rng: np.random.Generator) -> Array:
        """Return a token for each row of logits, (batch, vocabulary)."""
        if self.temperature == 0:
            return logits.argmax(-1)
        return np.array([self._draw(row, rng) for row in logits])

    def _draw(self, row: Array, rng: np.random.Generator) -> int:
        count = min(self.top_k, len(row)) or len(row)
        if count < len(row):
            kept = np.argpartition(row, -count)[-count:]
        else:
            kept = np.arange(len(row))
        scores = row[kept].astype("float64") / self.temperature
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        if self.top_p < 1:
            order = np.argsort(-shares, kind="stable")
            last = int(np.searchsorted(np.cumsum(shares[order]), self.top_p)) + 1
            kept, shares = kept[order[:last]], shares[order[:last]]
        bounds = np.cumsum(shares)
        return int(kept[min(np.searchsorted(bounds, rng.random() * bounds[-1], "right"), len(kept) - 1)])


class Generator:
    """A decoder that is asked for tokens.

    Args:
        model: a library's path, or a model, whose prompt's length has a name. The cache's length has one, too
            (``--dim past_sequence_length=0:1023``), or is known: then the caches are buffers of that length, (...,
            length, size), and ``attention_mask``, ``position_ids`` or ``cache_position`` say how full they are.
        ids: the name of the input of token ids; found by its name or as the one input of (batch, length) integers.
        caches: for each input that is a cache the output that continues it. By default ``past_key_values.N.key`` is
            continued by ``present.N.key``, and so on: ``past`` in a name by ``present``.
        logits: the name of the output (batch, length or 1, vocabulary), or (batch, vocabulary).

    Raises:
        TVMError: the model is no decoder of this kind; the message says what is missing.
    """

    def __init__(
        self,
        model: str | Path | Model,
        *,
        ids: str | None = None,
        caches: Mapping[str, str] | None = None,
        logits: str = "logits",
    ) -> None:
        self.model = model if isinstance(model, Model) else load(model)
        self._names = _Names(self.model, ids, caches, logits)
        self._machine = VirtualMachine(Executable(self.model.module), cpu())
        names = "set_input", "carry", "invoke_stateful", "get_output"
        self._set, self._carry, self._run, self._output = (self._machine.module[n] for n in names)

    def __call__(
        self,
        prompts: Sequence[Any] | Array,
        max_tokens: int = 64,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Iterable[int] = (),
    ) -> list[Any]:
        """Return the tokens that follow a prompt, or a list of them for each of several prompts.

        Args:
            prompts: token ids; or a sequence of such, which may differ in length where the model has
                ``attention_mask`` and ``position_ids``.
            max_tokens: at most so many for each prompt.
            temperature: see :class:`Sampling`; 0 takes the most likely token.
            top_k: see :class:`Sampling`.
            top_p: see :class:`Sampling`.
            seed: of what is drawn; None for another result each time.
            stop: tokens that end a sequence, and are no part of the result.

        Raises:
            TVMError: prompt and tokens do not fit the cache, or an input does not fit the model.
        """
        rows, single = _prompts(prompts)
        ends = frozenset(map(int, stop))
        found: list[list[int]] = [[] for _ in rows]
        going = set(range(len(rows)))
        sampling = Sampling(temperature, top_k, top_p)
        for tokens in self._steps(rows, max_tokens, sampling, np.random.default_rng(seed)):
            for row in tuple(going):
                token = int(tokens[row])
                if token in ends:
                    going.discard(row)
                else:
                    found[row].append(token)
            if not going:
                break
        return found[0] if single else found

    def stream(self, prompts: Sequence[Any] | Array, max_tokens: int = 64, **options: Any) -> Iterator[Array]:
        """Yield each step's tokens, (batch,), as they are made: to print them, or to stop by a rule of one's own.

        Args:
            prompts: as for a call.
            max_tokens: as for a call.
            options: ``temperature``, ``top_k``, ``top_p`` and ``seed``, as for a call.
        """
        rng = np.random.default_rng(options.pop("seed", None))
        return self._steps(_prompts(prompts)[0], max_tokens, Sampling(**options), rng)

    def _steps(
        self, rows: list[Array], max_tokens: int, sampling: Sampling, rng: np.random.Generator
    ) -> Iterator[Array]:
        state = _State(self._names, rows, max_tokens)
        for part in range(0, state.length, state.chunk):
            logits = self._step(state, state.prompt[:, part : part + state.chunk])
        for count in range(max_tokens):
            tokens = sampling.choose(logits, rng)
            yield tokens
            if count + 1 < max_tokens:
                logits = self._step(state, tokens[:, None])

    def _step(self, state: _State, ids: Array) -> Array:
        """Run the model on some tokens behind those before; return the logits of the last, (batch, vocabulary)."""
        names = self._names
        given = state.inputs(ids)
        if state.seen == 0:
            values = {**given, **state.caches()}
            self._set("main", *(values[name] for name in names.interface.inputs))
            del values  # the program alone holds the caches, so it appends to them in place
        else:
            self._carry("main", names.pairs, *(x for name, value in given.items() for x in (names.number[name], value)))
        self._run("main")
        state.seen += ids.shape[1]
        logits = numpy_view(self._output(names.logits))
        return logits[:, -1] if logits.ndim == 3 else logits


class _Names:
    """Which inputs and outputs of a model are what."""

    def __init__(self, model: Model, ids: str | None, caches: Mapping[str, str] | None, logits: str) -> None:
        if model.kind != "virtual machine":
            raise TVMError(
                "the library's shapes are all known; a generator needs a prompt whose length has a name, and mostly a "
                "cache whose length has one: compile with --dim past_sequence_length=0:1023, or what the model names it"
            )
        self.interface: Interface = model.interface
        inputs, outputs = self.interface.inputs, list(self.interface.outputs)
        self.number = {name: i for i, name in enumerate(inputs)}
        self.caches = dict(caches) if caches is not None else _caches(inputs, outputs)
        for name, output in self.caches.items():
            if name not in inputs or output not in outputs:
                raise TVMError(f"caches: the model has no input {name!r} or no output {output!r}")
        if not self.caches:
            raise TVMError(
                f"no input of the model is a cache: {', '.join(inputs)}; name them: caches={{'past': 'present'}}"
            )
        if logits not in outputs:
            raise TVMError(f"the model has no output {logits!r}; its outputs are: {', '.join(outputs)}")
        self.logits = outputs.index(logits)
        self.ids = ids or self._find_ids()
        self._check_rest()
        self.axis, self.length = self._growing()
        self.pairs = array(np.array([(self.number[i], outputs.index(o)) for i, o in self.caches.items()], "int64"))

    def _find_ids(self) -> str:
        inputs = self.interface.inputs
        rest = [n for n in inputs if n not in self.caches and n not in (_MASK, _PLACES, _ORDER)]
        for name in (*_IDS, *rest[:1]):
            if name in inputs:
                return name
        raise TVMError(f"no input of the model is known to be token ids: {', '.join(inputs)}; name it: ids=")

    def _check_rest(self) -> None:
        """Refuse inputs that nothing is known of, and ranks that are not expected."""
        inputs = self.interface.inputs
        ranks = {self.ids: 2, _MASK: 2, _PLACES: 2, _ORDER: 1}
        for name, info in inputs.items():
            if name not in self.caches and len(info.shape) != ranks.get(name, -1):
                raise TVMError(
                    f"the input {name!r}, {info}, is none that a generator has values for; those are token ids, "
                    f"{_MASK} and {_PLACES} (batch, length), {_ORDER} (length), and caches"
                )
        if self.ids not in inputs:
            raise TVMError(f"the model has no input {self.ids!r}; its inputs are: {', '.join(inputs)}")

    def _growing(self) -> tuple[dict[str, int], str | int]:
        """Return the axis of each cache that grows, and the name of the length; no axes, and the length of buffers."""
        batch = self.interface.inputs[self.ids].shape[0]
        axes: dict[str, int] = {}
        lengths: set[str | int] = set()
        for name in self.caches:
            shape = self.interface.inputs[name].shape
            found = [i for i, d in enumerate(shape) if isinstance(d, str) and d != batch]
            if len(found) > 1 or (not found and len(shape) < 3):
                raise TVMError(f"the cache {name!r}, {self.interface.inputs[name]}, should have one length with a name")
            if found:
                axes[name] = found[0]
            lengths.add(shape[found[0] if found else -2])
        if len(lengths) != 1:
            named = ", ".join(sorted(map(str, lengths)))
            raise TVMError(f"the caches have several lengths: {named}")
        if not axes and not {_MASK, _PLACES, _ORDER} & self.interface.inputs.keys():
            raise TVMError(
                f"the caches have a known length, {lengths.pop()}, and no input says how full they are: {_MASK}, "
                f"{_PLACES} or {_ORDER}"
            )
        return axes, lengths.pop()

    def limits(self, name: Any) -> tuple[int, int | None]:
        """Return the least and the largest number of a dimension, None for any."""
        return (name, name) if isinstance(name, int) else self.interface.limits.get(name, (0, None, 1))[:2]


def _caches(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """Find outputs that continue inputs: past_key_values.0.key by present.0.key, past_0 by present_0, and so on."""
    outputs = set(outputs)
    found = {}
    for name in inputs:
        forms = [re.sub("past(_key_values)?", new, name, count=1) for new in ("present", "present_key_values")]
        match = [form for form in forms if form != name and form in outputs]
        if match:
            found[name] = match[0]
    return found


def _prompts(given: Sequence[Any] | Array) -> tuple[list[Array], bool]:
    """Return the prompts as vectors, and whether there is but one, without a batch."""
    if isinstance(given, np.ndarray):
        given = list(given)
    single = len(given) > 0 and np.ndim(given[0]) == 0
    rows = [np.asarray(row) for row in ([given] if single else given)]
    if not rows or any(row.ndim != 1 or not len(row) or row.dtype.kind not in "iu" for row in rows):
        raise TVMError(
            "a prompt is a sequence of one or more token ids, which are integers; several are a list of such"
        )
    return rows, single


class _State:
    """Prompts side by side, the longest first token first, and how many tokens of them the caches hold."""

    def __init__(self, names: _Names, rows: list[Array], max_tokens: int) -> None:
        self.names = names
        self.length = max(map(len, rows))
        self.capacity = self.length + max(max_tokens, 1) - 1
        self.seen = 0
        self.batch = len(rows)
        self.missing = np.array([self.length - len(row) for row in rows])
        self._check(max_tokens)
        self.prompt = np.stack([np.pad(row, (self.length - len(row), 0)) for row in rows])
        most = names.limits(names.interface.inputs[names.ids].shape[1])[1]
        self.chunk = min(self.length, most or self.length)
        mask = names.interface.inputs.get(_MASK, names.interface.inputs[names.ids])
        self.kept = (np.arange(self.capacity) >= self.missing[:, None]).astype(numpy_dtype(mask.dtype))

    def _check(self, max_tokens: int) -> None:
        names = self.names
        if max_tokens < 1:
            raise TVMError(f"max_tokens is {max_tokens}; at least one token is asked for")
        if not names.axis:
            self._check_buffers(max_tokens)
            return
        least, most = names.limits(names.length)
        if least > 0:
            raise TVMError(
                f"the library's cache begins with {least} tokens or more; compile with "
                f"--dim {names.length}=0:{most or 1023}"
            )
        needed = self.length + max_tokens - 2  # by the last step, for which the first of all takes none
        if most is not None and max_tokens > 1 and needed > most:
            raise TVMError(
                f"a prompt of {self.length} tokens and {max_tokens} that follow need a cache of {needed} tokens; the "
                f"library's holds {most} at most (--dim {names.length}=0:{needed} makes one that does)"
            )
        if self.missing.any() and not {_MASK, _PLACES} <= names.interface.inputs.keys():
            raise TVMError(
                f"prompts of different lengths need a model with {_MASK} and {_PLACES}; give this one prompts of one "
                "length, or one after the other"
            )

    def _check_buffers(self, max_tokens: int) -> None:
        """Check that buffers of a known length hold all tokens but the last."""
        limit = int(self.names.length)
        if self.capacity > limit:
            raise TVMError(
                f"a prompt of {self.length} tokens and {max_tokens} that follow need a cache of {self.capacity} "
                f"tokens; the library's holds {limit}"
            )
        if self.missing.any():
            raise TVMError(
                "prompts of different lengths need a cache whose length has a name, not one of a known length; give "
                "this model prompts of one length, or one after the other"
            )

    def inputs(self, ids: Array) -> dict[str, Array]:
        """Return the inputs beside the caches."""
        names, end = self.names, self.seen + ids.shape[1]
        given = {names.ids: ids}
        inputs = names.interface.inputs
        if _MASK in inputs:
            whole = inputs[_MASK].shape[1]
            rest = whole - end if isinstance(whole, int) else 0
            given[_MASK] = np.pad(self.kept[:, :end], ((0, 0), (0, max(rest, 0))))
        if _PLACES in inputs:
            given[_PLACES] = np.maximum(np.arange(self.seen, end) - self.missing[:, None], 0)
        if _ORDER in inputs:
            given[_ORDER] = np.arange(self.seen, end)
        return {name: np.ascontiguousarray(v, numpy_dtype(inputs[name].dtype)) for name, v in given.items()}

    def caches(self) -> dict[str, Any]:
        """Return empty caches with capacity for all tokens, or buffers of zeros."""
        made = {}
        for name in self.names.caches:
            info: TensorInfo = self.names.interface.inputs[name]
            shape = [d if isinstance(d, int) else self.batch for d in info.shape]
            axis = self.names.axis.get(name)
            if axis is not None:
                shape[axis] = 0
            empty = np.zeros(shape, numpy_dtype(info.dtype))
            made[name] = empty if axis is None else with_capacity(empty, axis, self.capacity)
        return made


__all__ = ["Generator", "Sampling"]
