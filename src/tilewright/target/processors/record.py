"""Fields of a processor's record: each value with its unit, measured on Zen 5 unless another processor is named.

Each class is one kind of work. The defaults hold for every family that does not override them in ``families``. How they
were found, and what they gain, is in ``docs/decisions``, by operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Caches:
    """Sizes of the data caches that one core sees, in bytes."""

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    """Of what cores share; where models of a family differ, the least of those that are common."""


@dataclass(frozen=True)
class Memory:
    """Latency and bandwidth of memory, and prefetching."""

    streams_past_caches: bool = False
    """Whether weights that do not stay in the last-level cache are fetched by hints that leave them out of it.

    Zen 5: not to keep them takes 4 to 7 % off a decoding step of GPT-2. Sapphire Rapids: x86's PREFETCHNTA fetches into
    the first-level cache alone, whose few outstanding misses then bound it to half of the memory's bandwidth. True only
    where it was measured to pay.
    """

    row_bytes_ahead: int = 3072
    """Bytes between the weights that a few rows multiply and those that they fetch; 0: they fetch none.

    Zen 5: 2 to 4 KiB are as good. Sapphire Rapids: 3 KiB take 5 % less time than no fetching. Zen 3 reads 12 to 13 GB/s
    with any fetching of a program's own, and 15.5 of the 16 that there are without."""

    code_bytes_ahead: int = 3072
    """Likewise of codes of few bits. Unpacking fills the window of instructions that a processor looks ahead in: Zen 3
    streams 11.5 GB/s without fetching, 14 with any distance from 1 to 4 KiB (reading alone: 13.5 to 16)."""

    steps_ahead: int = 48
    """Steps of a product between the weights that are used and those that are fetched: what a load from memory
    takes, at some 15 cycles a step."""

    norm_bytes_ahead: int = 6144
    """Bytes between what a layer norm reads and what it fetches; Zen 4."""


@dataclass(frozen=True)
class Threads:
    """Thresholds for using threads: a launch takes 0.2 to 0.6 us, and data may be in other cores' caches."""

    least_work: int = 1 << 16
    """Element operations below which one core is as fast."""

    least_products: int = 1 << 18
    """Multiply-adds of register tiles below which one core is as fast."""

    least_byte_products: int = 1 << 20
    """Likewise of products of bytes, of which an instruction adds up four."""

    least_row_products: int = 1 << 16
    """Likewise of a product with one row, each of which takes a weight of its own from a cache."""

    least_sorted: int = 16384
    """Elements of rows that are sorted, below which one core is as fast."""

    least_tasks: int = 8
    """Parallel iterations that occupy the cores."""


@dataclass(frozen=True)
class Tiles:
    """Register tiles of products: the model of their time, in vector multiply-adds at the core's peak."""

    latency_cover: int = 10
    """Independent multiply-adds that keep the pipelines full."""

    most_chunks: int = 5
    """Vectors of channels in a tile: with 5, 80 channels are tiles of 5 x 5 and not of 25 x 1, 6 % less time."""

    weight_reuse: float = 4.5
    """Multiply-adds for each register of weights, of 16 floats, below which the second-level cache is too slow."""

    load_time: float = 0.15
    """What a load adds to a multiply-add that runs beside it."""

    rest_time: float = 0.05
    """What the shorter tile of left-over positions adds, as a share of the whole."""


@dataclass(frozen=True)
class MatrixTiles:
    """Products in AMX's tiles, measured on Sapphire Rapids; times in cycles where nothing else is said."""

    row_share: float = 0.3
    """A product of tiles of r rows, loads included, takes max(8, r) / 16 of this and 1 - this besides: 2 x 2 tiles from
    the first cache at 3.6 GHz in ns: r = 16 17.9, 14 17.3, 12 16.5, 10 15.5, 8 15.3, 3 15.2."""

    most_sums: int = 32 << 10
    """Bytes of the sums of a convolution's block, which are read again at once."""

    whole_sums: int = 64 << 10
    """Of all positions, where a block of channels then reads its weights once, and fetches the next."""

    least_share: float = 0.2
    """Of the tiles' peak, below which vector registers are as fast: of bytes theirs is an eighth."""

    copy_time: float = 51.0
    """Of copying a step's bytes of windows, in products with so many channels."""

    half_time: float = 1 / 8
    """Of a product of bfloat16, by that of float32 in vectors: the peak is a 16th, of which kernels reach a half."""

    call_time: float = 6.0
    """Of a kernel's configuration, in products of tiles."""

    product_time: float = 21.5
    """Of a product of tiles of 16 rows by 64 bytes, of which six compute one of floats: loads, and sums that are
    stored and loaded for each chunk of the sum, are in it. This and the next are a least-squares fit of ResNet-50's
    15 convolutions of single points and of stride 2, which they predict within 8 %."""

    split_weight_time: float = 1.2
    """Splitting a float32 weight into the parts that tiles multiply, once for each block of rows: 0.5 from the second
    cache, the rest is that in networks they come from memory."""

    late_weight_time: float = 0.8
    """What a weight beyond the second cache adds to a convolution in vector registers: of 7x7 positions one takes 2.3
    to 3.1 instead of 1.7."""

    split_data_time: float = 0.7
    """Likewise an element of the data, once."""

    result_time: float = 0.77
    """Of an element of the result: its sum is looked at, and read again by what comes after it."""

    fma_time: float = 0.034
    """What a multiply-add of a register tile takes an element, of which a core has 32 in a cycle."""

    clear_gain: float = 1.05
    """The time in vector registers over that in tiles, from which on floats take tiles."""

    most_rows: int = 256
    """Rows of floats that are computed with a block of weights, which is split for them."""

    cache_share: float = 0.38
    """Of the second-level cache, for the parts of a chunk of these rows."""


@dataclass(frozen=True)
class Halves:
    """The estimate of what weights of bfloat16 gain; times in vector multiply-adds of float32."""

    weight_bytes: float = 8.0
    """Of weights from memory in the time of a multiply-add."""

    result_time: float = 2.5
    """Of an element that a product writes, with what is computed of it: by MobileNetV2 and ResNet-50."""

    winograd_time: float = 0.5
    """Of a 3x3 convolution of float32 by Winograd's method, over that of a direct one."""

    call_time: float = 4_000.0
    """Of a kernel beside its products: the digits model runs 1.5 times as fast, not 3.5."""


@dataclass(frozen=True)
class Dense:
    """Packed and plain products of matrices."""

    least_steps: int = 512
    """Steps of a chunk of the sum below which loading and storing accumulators shows."""

    padding_time: float = 1.05
    """Time where the last block of columns is no whole one, over that without."""

    pairs_of_bfloat16: bool = False
    """Whether ``vdpbf16ps`` takes less time than two FMA: on Sapphire Rapids it takes 2.7 times that of one, and a
    product of 128x768x768 1.95 ms instead of 1.29 in float32."""

    few_rows: int = 4
    """Rows that wait for their weights; more are kept busy."""

    row_vectors: tuple[int, ...] = (4, 5, 6, 7, 8, 3, 2)
    """Accumulators of a single row, the best first."""

    long_sum: int = 16
    """Steps from which on a dot product in vectors is faster than columns of padding."""

    step_bytes: int = 128
    """Bytes that a step of a row's sum has to read where it has fewer accumulators than the best: 2 of 32 bytes read
    69 of 124 GB/s."""

    column_bytes: int = 1024
    """Bytes of a row of a plain matrix that are multiplied at once: 1x768x3072 take 131, 106, 87 and 90 us with 256,
    512, 1024 and 1536; with registers of 32 bytes 170, 125 and 96 us with 256, 384 and 1024."""

    steps_at_once: int = 4
    """Steps of a sum in memory that are taken together: 8 take 1.6 times as long."""

    least_tiles: int = 4
    """Tiles that use a chunk of weights, below which it does not pay to keep it."""

    cache_share: float = 0.7
    """Of the second-level cache, for the rows and weights of a chunk."""

    rows_for_cores: int = 26
    """Rows, over the square of the number of cores, from which on every core can read all weights: where a core
    computes 6.5 operations while memory gives a byte, that takes half of the time."""


@dataclass(frozen=True)
class Strassen:
    """Products by Strassen's method, measured on Zen 5 and Zen 4."""

    unrolled_steps: int = 2
    """Steps of the sum written out: with more, seven loops leave the cache of decoded instructions."""

    least_chunk: int = 64
    """Steps of the sum of a product below which adding up the products takes what they save."""

    least_tile: int = 6
    """Rows of a tile below which the weight, of which ten blocks are read for seven, is late."""

    most_pairs: int = 64
    """Pairs of rows in a group."""

    whole_share: float = 0.95
    """Of the second-level cache, for the data's forms and the weight of two pairs of blocks."""

    chunk_share: float = 0.5
    """Likewise, where these are of a part of the sum."""

    least_rows: int = 64
    """Rows for each core below which it waits for the weight."""

    form_time: float = 0.375
    """Vector multiply-adds that an element of the data's forms takes."""

    sum_time: float = 1.5
    """Vector multiply-adds that adding up the products to an element of the result takes."""

    clear_gain: float = 1.02
    """The direct product's modelled time over this method's, from which on it is chosen."""


@dataclass(frozen=True)
class Convolution:
    """Direct convolutions; times in vector multiply-adds at the core's peak."""

    worth_merging: float = 0.97
    """Of the modelled time, below which rows are merged."""

    adding_time: float = 3.0
    """For adding up lanes: a vector of results, and each lane after the first."""

    lone_register_time: float = 1.4
    """Of a multiply-add that takes one value from memory by itself, over that of a pair."""

    worth_adding: float = 0.97
    """Of the modelled time, above which fewer lanes to add up are as good."""

    copy_time: float = 4.0
    """For copying a vector of a window."""

    worth_columns: float = 0.9
    """Of the time, below which tasks of columns are worth running through all weights."""

    most_band_rows: int = 8
    """Rows of a band of a depthwise convolution, of which those at both ends are read twice."""

    most_taps: int = 32
    """Elements of a depthwise window, or a pool's, that is written out."""

    narrow_window: int = 3
    """Columns of a depthwise window below which tiles of 8 positions keep the units busy."""


@dataclass(frozen=True)
class Winograd:
    """The model that chooses between Winograd's convolutions and direct ones, and their blocks."""

    cache_bytes: float = 13.0
    """Bytes that come from the last-level cache during a vector multiply-add."""

    memory_bytes: float = 2.75
    """Bytes that come from memory meanwhile, inside of whole networks."""

    weight_reuse: float = 6.0
    """Multiply-adds for each register of weights, which are read once, below which they are late."""

    transform_times: tuple[tuple[int, float], ...] = ((4, 5.0), (6, 8.0), (8, 12.0), (16, 4.0), (36, 7.0), (64, 12.0))
    """By the number of positions of a tile: vector multiply-adds that both transforms take for a position of a tile."""

    overlap_loss: float = 0.25
    """Of the time of the faster of two things done at a time, what the slower does not hide."""

    direct_overlap_loss: float = 0.5
    """Likewise in the direct method."""

    clear_gain: float = 1.1
    """The direct method's modelled time over Winograd's, whose weights are larger, from which on that is chosen."""

    most_parts: int = 4
    """Parts of the channels for each core."""


@dataclass(frozen=True)
class Attention:
    """Attention in blocks of keys."""

    few_rows: int = 4
    """Rows below which packing the keys takes longer than it saves."""

    group_tiles: int = 4
    """Tiles that share a block of keys or values in the first-level cache: 6 % less time in AVX2 code than without."""

    partial_block_time: float = 1.05
    """Time of the scores where the last block of columns is narrower than the others, over that without."""

    chunk_keys: int = 128
    """Keys of a task where few queries are: their scores, and the values of a group, stay in the first-level cache."""


@dataclass(frozen=True)
class Pooling:
    """Pools, measured on Zen 4 and Zen 5."""

    least_block: int = 4
    """Packed channels that are worth a vector."""

    long_band: int = 256 * 1024
    """Bytes of a band of rows that is read at nearly full speed."""

    bands_per_core: int = 4
    """Bands, at least, for cores to share the work evenly."""

    widest_tile: int = 18
    """Windows of a row that are written out."""

    most_written_out: int = 192
    """Elements of all windows that are written out."""

    large_windows: int = 8
    """Windows of a tile whose elements are not written out."""

    pass_tile: int = 2
    """Windows of a row that are written out in a pass over one of their rows."""


@dataclass(frozen=True)
class Movement:
    """Element-wise work, transpositions, and sorting."""

    least_rows: int = 8
    """Outer iterations that suffice to occupy the threads."""

    many_rows: int = 32
    """Outer iterations that occupy the threads evenly."""

    square: int = 16
    """Rows of a square of a transposition: as many floats as a cache line holds."""

    turned: int = 4
    """Rows, at least, that registers turn."""

    short: int = 64
    """Rows that are written in turns, each on from where it was left: four squares, measured for 37 to 64 rows."""

    index_uses: int = 4
    """Vectors found by one computed index, which takes about as long as they do."""

    square_work: int = 4096
    """Elements from which on the order of a transposition matters."""

    turned_time: float = 2.0
    """Of an element that a transposition moves, in elements that are copied in order; Sapphire Rapids, as the next
    three."""

    turned_near_time: float = 1.25
    """Likewise, where a core's cache holds what is read."""

    again_time: float = 0.25
    """Likewise of vectors near where the same tensor was read before: resized images of 256 channels."""

    near_time: float = 4.5
    """Likewise of an element that is found by an index of its own, its neighbour or a cache being near."""

    far_time: float = 8.0
    """Likewise, where each is in a cache line of its own, of data that no core's cache holds: 4 to 25."""

    most_counted: int = 192
    """Elements up to which sorting by counting is the faster: 190 floats take 1.2 us, 300 by digits 1.5."""


@dataclass(frozen=True)
class Processor:
    """Measurements of one family of processors."""

    name: str
    """What the family is called."""

    caches: Caches | None = None
    """None: those that are typical of the architecture. Plain ``llvm`` takes the sizes of the machine at hand."""

    memory: Memory = field(default=Memory())
    threads: Threads = field(default=Threads())
    tiles: Tiles = field(default=Tiles())
    matrix_tiles: MatrixTiles = field(default=MatrixTiles())
    halves: Halves = field(default=Halves())
    dense: Dense = field(default=Dense())
    strassen: Strassen = field(default=Strassen())
    convolution: Convolution = field(default=Convolution())
    winograd: Winograd = field(default=Winograd())
    attention: Attention = field(default=Attention())
    pooling: Pooling = field(default=Pooling())
    movement: Movement = field(default=Movement())
