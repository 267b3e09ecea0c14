// A network in WebAssembly, for Node and browsers: const model = await Model.load(); model.run({x: new Float32Array(...)}).
// Made by Tilewright; {NAME}.wasm and, where there are weights, {NAME}_weights.bin are beside this file.

const META = {META};

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
const PAGE = 65536;

// erfc by its continued fraction, and erf by its series: both to the last bits of a double but two or three.
function erfc(x) {
  if (x !== x) return x;
  if (x < 2) return 1 - erf(x);
  if (x > 27.5) return 0;
  let fraction = 0;
  for (let n = 120; n > 0; n--) fraction = (n / 2) / (x + fraction);
  return Math.exp(-x * x) / (x + fraction) / Math.sqrt(Math.PI);
}
function erf(x) {
  if (x < 0) return -erf(-x);
  if (x >= 2) return 1 - erfc(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) {
    term *= -x * x / n;
    sum += term / (2 * n + 1);
    if (x === 0) break;
  }
  return 2 / Math.sqrt(Math.PI) * sum;
}
const MATH = {erf, erfc, exp2: (x) => 2 ** x, fmod: (x, y) => x % y};
const math = new Proxy(MATH, {get: (own, name) => own[name] ?? Math[name]});

// The bytes of a file beside this one.
async function read(name) {
  const url = new URL(name, import.meta.url);
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

export class Model {
  // Loads the code and the weights.
  static async load() {
    const [code, weights] = await Promise.all([read(META.code), META.weights ? read(META.weights) : new ArrayBuffer(0)]);
    const module = await WebAssembly.compile(code);
    return new Model(await WebAssembly.instantiate(module, {math}), new Uint8Array(weights));
  }

  constructor(instance, weights) {
    if (weights.length !== META.weightBytes) {
      throw new Error(`${META.weights} has ${weights.length} bytes; expected ${META.weightBytes}`);
    }
    const {memory, __heap_base: base} = instance.exports;
    let end = base.value;
    const take = (bytes) => {
      const start = Math.ceil(end / META.alignment) * META.alignment;
      end = start + bytes;
      return start;
    };
    const tensors = (infos) => infos.map((info) => ({...info, address: take(info.elements * ARRAYS[info.dtype].BYTES_PER_ELEMENT)}));
    this.inputs = tensors(META.inputs);
    this.outputs = tensors(META.outputs);
    const places = [...this.inputs, ...this.outputs].map((tensor) => tensor.address);
    const weightsAt = take(weights.length);
    places.push(weightsAt, ...META.pools.map(take));
    const list = take(4 * places.length);
    const missing = Math.ceil((end - memory.buffer.byteLength) / PAGE);
    if (missing > 0) memory.grow(missing);
    new Uint8Array(memory.buffer).set(weights, weightsAt);
    new Uint32Array(memory.buffer, list, places.length).set(places);
    this.memory = memory;
    this.call = () => instance.exports.tw_run(list);
  }

  // The outputs by name, for inputs by name: typed arrays of the tensors' elements, row by row.
  run(inputs) {
    const unknown = Object.keys(inputs).filter((name) => !this.inputs.some((info) => info.name === name));
    if (unknown.length) throw new Error(`no input ${unknown.join(", ")}; the inputs are ${this.inputs.map((i) => i.name).join(", ")}`);
    for (const info of this.inputs) this.#view(info).set(this.#checked(info, inputs[info.name]));
    if (this.call() !== 0) throw new Error("an index, length or count of an input is out of range");
    return Object.fromEntries(this.outputs.map((info) => [info.name, this.#view(info).slice()]));
  }

  #view(info) {
    return new ARRAYS[info.dtype](this.memory.buffer, info.address, info.elements);
  }

  #checked(info, value) {
    const wanted = `${ARRAYS[info.dtype].name} of ${info.elements} elements (${info.dtype}, ${info.shape.join(" x ") || "scalar"})`;
    if (value === undefined) throw new Error(`input ${info.name} has no value; expected a ${wanted}`);
    if (!(value instanceof ARRAYS[info.dtype]) || value.length !== info.elements) {
      throw new Error(`input ${info.name} is a ${value?.constructor?.name} of ${value?.length} elements; expected a ${wanted}`);
    }
    return value;
  }
}
