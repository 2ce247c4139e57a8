// A model that Mirlo compiled. `await load()` opens it, `await model.run({name: array})` runs it.

/** The inputs and outputs: names, element types, dims; a dim that is no number may have any size. */
export const signature = /* SIGNATURE */ null;

export class ModelError extends Error {}

/** The arrays of each element type. */
export const ARRAYS = {
  f32: Float32Array, f64: Float64Array, f16: globalThis.Float16Array ?? Uint16Array, bf16: Uint16Array, i8: Int8Array,
  u8: Uint8Array, i16: Int16Array, u16: Uint16Array, i32: Int32Array, u32: Uint32Array, i64: BigInt64Array,
  u64: BigUint64Array, bool: Uint8Array,
};
const ATTEMPTS = 3; // to go on with a file that breaks off

/** Read a file in parts; `take(bytes, offset, total)` gets each. What breaks off goes on where it ended. */
async function read(source, take, signal) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
    const bytes = ArrayBuffer.isView(source) ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
    take(bytes, 0, bytes.length);
    return;
  }
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    const bytes = await readFile(url);
    take(bytes, 0, bytes.length);
    return;
  }
  let offset = 0;
  for (let attempt = 1; ; ++attempt) {
    try {
      const headers = offset ? { Range: `bytes=${offset}-` } : {};
      const response = await fetch(url, { headers, signal });
      if (!response.ok) throw new ModelError(`${url}: the server answers ${response.status} ${response.statusText}`);
      if (offset && response.status !== 206) offset = 0; // the server has no ranges: from the beginning
      const length = Number(response.headers.get("Content-Length"));
      const total = length ? offset + length : 0;
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        take(value, offset, total);
        offset += value.length;
      }
      if (total && offset < total) throw new TypeError(`${url} ends after ${offset} of ${total} bytes`);
      return;
    } catch (error) {
      if (error instanceof ModelError || error.name === "AbortError" || attempt === ATTEMPTS) throw error;
    }
  }
}

/** Return a whole file. */
async function content(source, signal, progress) {
  let bytes = new Uint8Array(0);
  await read(source, (part, offset, total) => {
    if (bytes.length < Math.max(total, offset + part.length)) {
      const larger = new Uint8Array(Math.max(total, offset + part.length));
      larger.set(bytes);
      bytes = larger;
    }
    bytes.set(part, offset);
    progress(offset + part.length);
  }, signal);
  return bytes;
}

/** Return functions of the system that the module never needs, but its C library names: there are no files. */
function system(module) {
  const functions = {};
  for (const { module: group, name, kind } of WebAssembly.Module.imports(module))
    if (kind === "function") (functions[group] ??= {})[name] = () => 8;
  return functions;
}

/**
 * Open the model. Options: `weights` and `module`, where their files are (a URL, or the content as an ArrayBuffer);
 * `onProgress(loaded, total)`, in bytes of both; `signal`, an AbortSignal.
 */
export async function load(options = {}) {
  const { weights = `./${signature.weights}`, module = "./model.wasm", onProgress, signal } = options;
  const total = signature.moduleBytes + signature.weightsBytes;
  let loaded = 0;
  const code = await content(module, signal, (bytes) => onProgress?.(loaded = bytes, total));
  const compiled = await WebAssembly.compile(code).catch((error) => {
    throw new ModelError(`this engine does not compile the module, which needs ${signature.needs.join(", ") || "WebAssembly"}: ${error.message}`);
  });
  const { exports } = await WebAssembly.instantiate(compiled, system(compiled));
  exports._initialize?.();
  const model = new Model(exports);
  const before = loaded;
  let place = 0;
  if (signature.weightsBytes) {
    place = exports.allocate(signature.weightsBytes);
    if (!place) throw new ModelError(`there is no memory for ${signature.weightsBytes} bytes of weights`);
    let end = 0;
    await read(weights, (part, offset) => {
      if (offset + part.length > signature.weightsBytes)
        throw new ModelError(`the weights have more than the ${signature.weightsBytes} bytes of this model`);
      new Uint8Array(exports.memory.buffer, place + offset, part.length).set(part);
      end = offset + part.length;
      onProgress?.(before + end, total);
    }, signal);
    if (end !== signature.weightsBytes)
      throw new ModelError(`the weights have ${end} bytes, expected ${signature.weightsBytes}`);
  }
  if (exports.open_model(place)) throw new ModelError(model.message());
  return model;
}

/** Return the dims of an array for an input: those that it has, or those of the signature with one size left open. */
function dimsOf(spec, value, data) {
  if (value.dims) return value.dims.map(Number);
  const open = spec.dims.filter((dim) => typeof dim !== "number");
  const known = spec.dims.reduce((product, dim) => (typeof dim === "number" ? product * dim : product), 1);
  if (open.length > 1)
    throw new ModelError(`'${spec.name}' has the open dims ${open.join(", ")}: give {data, dims}`);
  const rest = known ? data.length / known : 0;
  if (open.length ? !Number.isInteger(rest) : data.length !== known)
    throw new ModelError(`'${spec.name}' has ${data.length} elements, expected ${spec.dims.join(" x ")}`);
  return spec.dims.map((dim) => (typeof dim === "number" ? dim : rest));
}

class Model {
  #exports;
  constructor(exports) {
    this.#exports = exports;
  }

  /** The inputs: names, element types, dims. */
  get inputs() {
    return signature.inputs;
  }

  /** The outputs: names, element types, dims. */
  get outputs() {
    return signature.outputs;
  }

  message() {
    const bytes = new Uint8Array(this.#exports.memory.buffer, this.#exports.message(), 512);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }

  /** Run the model on an array for each input, or `{data, dims}`; return `{data, dims}` for each output. */
  async run(feeds) {
    for (const name of Object.keys(feeds))
      if (!signature.inputs.some((spec) => spec.name === name))
        throw new ModelError(`there is no input '${name}'; there are ${signature.inputs.map((spec) => spec.name).join(", ")}`);
    signature.inputs.forEach((spec, number) => this.#set(spec, number, feeds[spec.name]));
    if (this.#exports.run_model()) throw new ModelError(this.message());
    const results = {};
    signature.outputs.forEach((spec, index) => (results[spec.name] = this.#get(spec, signature.inputs.length + index)));
    return results;
  }

  #set(spec, number, value) {
    if (value === undefined || value === null) throw new ModelError(`input '${spec.name}' is missing`);
    const data = ArrayBuffer.isView(value) ? value : value.data;
    const kind = ARRAYS[spec.type];
    if (!(data instanceof kind)) throw new ModelError(`'${spec.name}' is ${data?.constructor?.name}, expected ${kind.name}`);
    const dims = dimsOf(spec, value, data);
    if (dims.length !== spec.dims.length) throw new ModelError(`'${spec.name}' has ${dims.length} dims, expected ${spec.dims.length}`);
    if (!dims.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) throw new ModelError(`'${spec.name}' has the dims ${dims.join(" x ")}`);
    if (dims.reduce((product, dim) => product * dim, 1) !== data.length)
      throw new ModelError(`'${spec.name}' has ${data.length} elements, and dims ${dims.join(" x ")}`);
    const place = this.#exports.input(number, dims.length, data.byteLength);
    if (!place) throw new ModelError(`there is no memory for '${spec.name}'`);
    new Uint8Array(this.#exports.memory.buffer, place, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    new BigInt64Array(this.#exports.memory.buffer, this.#exports.dims_of(number), dims.length).set(dims.map(BigInt));
  }

  #get(spec, number) {
    const { memory, dims_of, rank_of, data_of } = this.#exports;
    const dims = Array.from(new BigInt64Array(memory.buffer, dims_of(number), rank_of(number)), Number);
    const length = dims.reduce((product, dim) => product * dim, 1);
    return { data: new ARRAYS[spec.type](memory.buffer, data_of(number), length).slice(), dims };
  }
}

/** Open the model in a worker of a browser, so that calls leave the page responsive: the same methods. */
export async function loadInWorker(options = {}) {
  const { onProgress, signal: _, ...rest } = options;
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const waiting = new Map();
  let calls = 0;
  worker.onmessage = ({ data }) => {
    if (data.progress) return onProgress?.(...data.progress);
    const { resolve, reject } = waiting.get(data.call);
    waiting.delete(data.call);
    if (data.error) reject(new ModelError(data.error));
    else resolve(data.result);
  };
  worker.onerror = (event) => {
    for (const { reject } of waiting.values()) reject(new ModelError(event.message));
    waiting.clear();
  };
  const call = (method, argument) =>
    new Promise((resolve, reject) => {
      waiting.set(++calls, { resolve, reject });
      worker.postMessage({ call: calls, method, argument });
    });
  await call("load", rest);
  return {
    inputs: signature.inputs, outputs: signature.outputs, run: (feeds) => call("run", feeds), close: () => worker.terminate(),
  };
}
