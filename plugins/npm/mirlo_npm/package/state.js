// What a sequence of calls keeps in the module's memory: key/value caches, and states of a fixed size.
import { ARRAYS, ModelError, call, getDims, numberOf, setDims, signature } from "./call.js";

const ROWS = 2; // the dim of a cache that counts its rows: [batch, heads, rows, size]
const released = new FinalizationRegistry(({ exports, caches }) => release(exports, caches));

function release(exports, caches) {
  for (const cache of caches) {
    exports.release(cache.address);
    cache.address = 0;
  }
}

/** Check the options of a state; return what it keeps: inputs, each with the output that is its next value; sizes. */
export function planState({ pairs, states = {}, capacity = 256, batch = 1, limit = Infinity, ...others } = {}) {
  if (Object.keys(others).length) throw new ModelError(`a state has no option '${Object.keys(others)[0]}'`);
  const counts = { capacity, batch, ...(limit === Infinity ? {} : { limit }) };
  for (const [name, value] of Object.entries(counts))
    if (!Number.isSafeInteger(value) || value < 1) throw new ModelError(`${name}: expected a number from 1 on, found ${value}`);
  const inPlace = new Map(signature.caches);
  const all = [
    ...(pairs ? Object.entries(pairs) : signature.caches).map((pair) => [...pair, true]),
    ...Object.entries(states).map((pair) => [...pair, false]),
  ];
  if (!all.length) throw new ModelError("the model has no outputs that update inputs in place: name the pairs, state({pairs: {input: output}})");
  const caches = all.map(([input, output, hasRows]) => {
    const before = signature.inputs.find(({ name }) => name === input);
    const after = signature.outputs.find(({ name }) => name === output);
    if (!before || !after) throw new ModelError(`'${input}' and '${output}' are no input and output of the model`);
    const open = before.dims.flatMap((dim, axis) => (typeof dim === "number" ? [] : [axis]));
    const ranks = [before.dims.length, after.dims.length];
    const fits = hasRows ? ranks.every((rank) => rank === 4) && open.every((axis) => axis === 0 || axis === ROWS) : open.every((axis) => axis === 0);
    if (!fits || ranks[0] !== ranks[1] || before.type !== after.type)
      throw new ModelError(`'${input}' and '${output}': expected ${hasRows ? "caches [batch, heads, rows, size]" : "states of a fixed size"}`);
    if (typeof before.dims[0] === "number" && before.dims[0] !== batch)
      throw new ModelError(`'${input}' holds ${before.dims[0]} sequences, found the batch ${batch}`);
    if (signature.windows.includes(input)) throw new ModelError(`'${input}' is the ring of a window: compile the model without rings`);
    const isInPlace = hasRows && inPlace.get(input) === output;
    return { input, output, hasRows, isInPlace, number: numberOf(before), next: numberOf(after), spec: before, address: 0, rows: 0 };
  });
  const fixed = caches.filter(({ hasRows, spec }) => hasRows && typeof spec.dims[ROWS] === "number").map(({ spec }) => spec.dims[ROWS]);
  const most = Math.min(limit, ...fixed);
  return { caches, batch, limit: most, capacity: fixed.length ? Math.min(...fixed) : Math.min(capacity, most) };
}

/**
 * The caches of a batch of sequences. Caches that the model updates in place have room for `capacity` rows, which
 * doubles when it is used up; the others grow with each call. Values of states of a fixed size are replaced.
 */
export class State {
  #exports;
  #options;
  #caches;
  #bound;
  #kept;
  #batch;
  #limit;
  #length = 0;
  #capacity;
  #isClosed = false;

  constructor(exports, options = {}) {
    this.#exports = exports;
    this.#options = options;
    const { caches, batch, limit, capacity } = planState(options);
    this.#caches = caches;
    this.#batch = batch;
    this.#limit = limit;
    this.#capacity = capacity;
    this.#bound = new Set(caches.map(({ input }) => input));
    this.#kept = new Set(caches.map(({ output }) => output));
    released.register(this, { exports, caches }, caches);
  }

  /** How many tokens the caches hold. */
  get length() {
    return this.#length;
  }

  /** How many tokens there is room for. */
  get capacity() {
    return this.#capacity;
  }

  /** Run the model on its other inputs, which are for so many new tokens; return its other outputs. */
  async run(feeds, tokens) {
    this.#require();
    if (!Number.isSafeInteger(tokens) || tokens < 1) throw new ModelError(`tokens: expected a number from 1 on, found ${tokens}`);
    this.#reserve(this.#length + tokens);
    for (const cache of this.#caches) {
      this.#exports.bind(cache.number, cache.spec.dims.length, cache.address, cache.isInPlace ? 1 : 0);
      setDims(this.#exports, cache.number, this.#dims(cache, cache.rows));
    }
    const results = call(this.#exports, feeds, this.#bound, this.#kept);
    for (const cache of this.#caches) if (!cache.isInPlace) this.#adopt(cache);
    this.#length += tokens;
    return results;
  }

  /**
   * Forget all tokens but the first `length`; a negative number forgets that many of the last ones. Return how many
   * tokens are left: none where there are states of a fixed size, which are known at the beginning only.
   */
  async rewind(length) {
    this.#require();
    let kept = length < 0 ? this.#length + length : length;
    if (!Number.isSafeInteger(kept) || kept < 0 || kept > this.#length)
      throw new ModelError(`cannot go back to ${length} tokens: there are ${this.#length}`);
    if (kept < this.#length && this.#caches.some(({ hasRows }) => !hasRows)) kept = 0;
    if (kept < this.#length)
      for (const cache of this.#caches) {
        if (cache.isInPlace) continue;
        if (cache.hasRows) this.#move(cache, cache, kept, kept);
        else this.#clear(cache);
      }
    this.#length = kept;
    return kept;
  }

  /** Return a state that holds a copy of the same tokens and continues on its own. */
  async fork() {
    this.#require();
    const clone = new State(this.#exports, this.#options);
    clone.#capacity = this.#capacity;
    clone.#length = this.#length;
    try {
      clone.#caches.forEach((cache, i) => this.#caches[i].address && this.#move(this.#caches[i], cache, this.#length, this.#caches[i].rows));
    } catch (error) {
      clone.close();
      throw error;
    }
    return clone;
  }

  /** Give the memory back. The memory of a state that nothing refers to is given back, too, some time later. */
  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    released.unregister(this.#caches);
    release(this.#exports, this.#caches);
  }

  #require() {
    if (this.#isClosed) throw new ModelError("the state is closed");
  }

  #dims({ spec, hasRows }, rows) {
    return spec.dims.map((dim, axis) => (hasRows && axis === ROWS ? rows : typeof dim === "number" ? dim : this.#batch));
  }

  /** Make room for so many tokens. */
  #reserve(length) {
    const limit = this.#limit;
    if (length > limit) throw new ModelError(`the state may have ${limit} tokens, ${length} are needed: rewind it, or begin another`);
    if (length > this.#capacity) this.#capacity = Math.min(Math.max(length, 2 * this.#capacity), limit);
    for (const cache of this.#caches) {
      if (cache.isInPlace && cache.rows < this.#capacity) this.#move(cache, cache, this.#length, this.#capacity);
      else if (!cache.address) this.#clear(cache);
    }
  }

  #bytes(cache, rows) {
    return this.#dims(cache, rows).reduce((product, dim) => product * dim, ARRAYS[cache.spec.type].BYTES_PER_ELEMENT);
  }

  #allocate(cache, rows) {
    const bytes = this.#bytes(cache, rows);
    const address = bytes < 2 ** 32 ? this.#exports.allocate(bytes) : 0;
    if (!address) throw new ModelError(`there is no memory for ${rows} rows of '${cache.input}'`);
    new Uint8Array(this.#exports.memory.buffer, address, bytes).fill(0); // rows that are not valid are hidden, which NaN would survive
    return address;
  }

  /** Let a cache have memory for `rows` rows, of which the first `count` are those of `from`. */
  #move(from, to, count, rows) {
    const address = this.#allocate(to, rows);
    const bytes = new Uint8Array(this.#exports.memory.buffer);
    if (from.address && !from.hasRows) bytes.copyWithin(address, from.address, from.address + this.#bytes(from, 0));
    else if (from.address && count) {
      const [batch, heads] = this.#dims(from, 1);
      const row = this.#bytes(from, 1) / (batch * heads);
      for (let part = 0; part < batch * heads; ++part) {
        const start = from.address + part * from.rows * row;
        bytes.copyWithin(address + part * rows * row, start, start + count * row);
      }
    }
    this.#exports.release(to.address);
    to.address = address;
    to.rows = rows;
  }

  /** Let a cache that is not in place be as at the beginning. */
  #clear(cache) {
    const address = this.#allocate(cache, 0);
    this.#exports.release(cache.address);
    cache.address = address;
    cache.rows = 0;
  }

  /** Take over the memory of an output as the next value of an input. */
  #adopt(cache) {
    const dims = getDims(this.#exports, cache.next);
    this.#exports.release(cache.address);
    cache.address = this.#exports.take(cache.next);
    cache.rows = cache.hasRows ? dims[ROWS] : 0;
  }
}
