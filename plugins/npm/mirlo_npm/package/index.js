// A model that Mirlo compiled. `await load()` opens it, `await model.run({name: array})` runs it.

import { ARRAYS, ModelError, call, message, signature } from "./call.js";
import { State, planState } from "./state.js";
import { newMemory, planThreads, startThreads } from "./threads.js";

export { ARRAYS, ModelError, signature };
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
 * `threads`, at most so many; `onProgress(loaded, total)`, in bytes of both; `signal`, an AbortSignal.
 */
export async function load(options = {}) {
  const { weights = `./${signature.weights}`, onProgress, signal } = options;
  let { threads, reason } = await planThreads(options.threads);
  const file = signature.modules[threads > 1 ? 1 : 0];
  const total = file.bytes + signature.weightsBytes;
  let loaded = 0;
  const code = await content(options.module ?? `./${file.name}`, signal, (bytes) => onProgress?.(loaded = bytes, total));
  const module = await WebAssembly.compile(code).catch((error) => {
    throw new ModelError(`this engine does not compile the module, which needs ${signature.needs.join(", ") || "WebAssembly"}: ${error.message}`);
  });
  const imports = system(module);
  const isShared = WebAssembly.Module.imports(module).some(({ kind }) => kind === "memory");
  if (threads > 1 && !isShared) [threads, reason] = [1, "the module that was given is for one thread"];
  if (isShared) (imports.env ??= {}).memory = newMemory();
  const instance = await WebAssembly.instantiate(module, imports);
  const exports = { ...instance.exports, ...(isShared && { memory: imports.env.memory }) };
  exports._initialize?.();
  let close = () => {};
  if (threads > 1) ({ threads, reason, close } = await startThreads(module, exports, imports, threads, reason));
  try {
    await open(exports, weights, signal, (bytes) => onProgress?.(loaded + bytes, total));
  } catch (error) {
    close();
    throw error;
  }
  return new Model(exports, threads, reason, close);
}

/** Load the weights into the module's memory, and open the model. */
async function open(exports, weights, signal, progress) {
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
      progress(end);
    }, signal);
    if (end !== signature.weightsBytes)
      throw new ModelError(`the weights have ${end} bytes, expected ${signature.weightsBytes}`);
  }
  if (exports.open_model(place)) throw new ModelError(message(exports));
}

const dropped = new FinalizationRegistry((close) => close());

class Model {
  #exports;
  #close;

  /** How many threads calls use. */
  threads;

  /** Why these are not as many as the model was compiled for; otherwise an empty text. */
  reason;

  constructor(exports, threads, reason, close) {
    this.#exports = exports;
    this.#close = close;
    this.threads = threads;
    this.reason = reason;
    dropped.register(this, close, this);
  }

  /** The inputs: names, element types, dims. */
  get inputs() {
    return signature.inputs;
  }

  /** The outputs: names, element types, dims. */
  get outputs() {
    return signature.outputs;
  }

  /** Run the model on an array for each input, or `{data, dims}`; return `{data, dims}` for each output. */
  async run(feeds) {
    return call(this.#opened(), feeds);
  }

  /**
   * Return the caches of a sequence, which stay in the module's memory from call to call. Options: `capacity`, tokens
   * that there is room for at first; `batch`; `limit`, most tokens; `pairs` and `states`, outputs by inputs.
   */
  state(options = {}) {
    return new State(this.#opened(), options);
  }

  /** End the threads of the model. Those of a model that nothing refers to end, too, some time later. */
  close() {
    dropped.unregister(this);
    this.#close();
    this.#exports = null;
  }

  #opened() {
    if (!this.#exports) throw new ModelError("the model is closed");
    return this.#exports;
  }
}

/** A state of a model in a worker: the same methods. */
class WorkerState {
  static #count = 0;
  #request;
  #id;
  length = 0;
  capacity = 0;

  constructor(request, options, source) {
    const id = (this.#id = ++WorkerState.#count);
    this.#request = request;
    this.length = source?.length ?? 0;
    this.capacity = source?.capacity ?? planState(options).capacity;
    dropped.register(this, () => request("closeState", { id }).catch(() => {}), this);
    // What is wrong with it, the next call reports.
    if (!source) request("openState", { id, options }).catch(() => {});
  }

  async #call(method, values) {
    const { result, length, capacity } = await this.#request(method, { id: this.#id, ...values });
    Object.assign(this, { length, capacity });
    return result;
  }

  run(feeds, tokens) {
    return this.#call("runState", { feeds, tokens });
  }

  rewind(length) {
    return this.#call("rewindState", { length });
  }

  async fork() {
    const clone = new WorkerState(this.#request, {}, this);
    await this.#call("forkState", { clone: clone.#id });
    return clone;
  }

  async close() {
    dropped.unregister(this);
    await this.#request("closeState", { id: this.#id });
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
  const request = (method, argument) =>
    new Promise((resolve, reject) => {
      waiting.set(++calls, { resolve, reject });
      worker.postMessage({ call: calls, method, argument });
    });
  const { threads, reason } = await request("load", rest);
  return {
    threads, reason, inputs: signature.inputs, outputs: signature.outputs, run: (feeds) => request("run", feeds),
    state: (options) => new WorkerState(request, options), close: () => worker.terminate(),
  };
}
