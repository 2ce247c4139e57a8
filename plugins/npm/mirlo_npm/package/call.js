// Calls of the module: arrays go into its memory, and come out of it.

/** The inputs and outputs: names, element types, dims; a dim that is no number may have any size. */
export const signature = /* SIGNATURE */ null;

export class ModelError extends Error {
  name = "ModelError";
}

/** The arrays of each element type. */
export const ARRAYS = {
  f32: Float32Array, f64: Float64Array, f16: globalThis.Float16Array ?? Uint16Array, bf16: Uint16Array, i8: Int8Array,
  u8: Uint8Array, i16: Int16Array, u16: Uint16Array, i32: Int32Array, u32: Uint32Array, i64: BigInt64Array,
  u64: BigUint64Array, bool: Uint8Array,
};

const numbers = new Map([...signature.inputs, ...signature.outputs].map((spec, number) => [spec, number]));

/** Return the number by which the module knows an input or an output. */
export const numberOf = (spec) => numbers.get(spec);

/** Return what the module says was wrong. */
export function message(exports) {
  const bytes = new Uint8Array(exports.memory.buffer, exports.message(), 512);
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
}

/**
 * Run the model on an array for each input, or `{data, dims}`; return `{data, dims}` for each output. The module has
 * the inputs `bound` already, and keeps the outputs `kept`: sets of names.
 */
export function call(exports, feeds, bound = new Set(), kept = new Set()) {
  const open = signature.inputs.filter(({ name }) => !bound.has(name));
  for (const name of Object.keys(feeds))
    if (!open.some((spec) => spec.name === name)) {
      const problem = bound.has(name) ? `'${name}' is part of the state` : `there is no input '${name}'`;
      throw new ModelError(`${problem}; there are ${open.map((spec) => spec.name).join(", ")}`);
    }
  open.forEach((spec) => setInput(exports, spec, feeds[spec.name]));
  if (exports.run_model()) throw new ModelError(message(exports));
  const results = {};
  for (const spec of signature.outputs) if (!kept.has(spec.name)) results[spec.name] = getOutput(exports, spec);
  return results;
}

/** Write the dims of an input to the module. */
export function setDims(exports, number, dims) {
  new BigInt64Array(exports.memory.buffer, exports.dims_of(number), dims.length).set(dims.map(BigInt));
}

/** Return the dims of an input or an output in the module. */
export function getDims(exports, number) {
  return Array.from(new BigInt64Array(exports.memory.buffer, exports.dims_of(number), exports.rank_of(number)), Number);
}

function setInput(exports, spec, value) {
  if (value === undefined || value === null) throw new ModelError(`input '${spec.name}' is missing`);
  const data = ArrayBuffer.isView(value) ? value : value.data;
  const kind = ARRAYS[spec.type];
  if (!(data instanceof kind)) throw new ModelError(`'${spec.name}' is ${data?.constructor?.name}, expected ${kind.name}`);
  const dims = dimsOf(spec, value, data);
  if (dims.length !== spec.dims.length) throw new ModelError(`'${spec.name}' has ${dims.length} dims, expected ${spec.dims.length}`);
  if (!dims.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) throw new ModelError(`'${spec.name}' has the dims ${dims.join(" x ")}`);
  if (dims.reduce((product, dim) => product * dim, 1) !== data.length)
    throw new ModelError(`'${spec.name}' has ${data.length} elements, and dims ${dims.join(" x ")}`);
  const place = exports.input(numberOf(spec), dims.length, data.byteLength);
  if (!place) throw new ModelError(`there is no memory for '${spec.name}'`);
  new Uint8Array(exports.memory.buffer, place, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  setDims(exports, numberOf(spec), dims);
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

function getOutput(exports, spec) {
  const dims = getDims(exports, numberOf(spec));
  const length = dims.reduce((product, dim) => product * dim, 1);
  return { data: new ARRAYS[spec.type](exports.memory.buffer, exports.data_of(numberOf(spec)), length).slice(), dims };
}
