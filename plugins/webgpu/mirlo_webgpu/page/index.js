// A model that Mirlo compiled for WebGPU. `await load()` opens it, `await model.run({name: array})` runs it.

const ARRAYS = {
  f32: Float32Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, u8: Uint8Array, i16: Int16Array, u16: Uint16Array,
  i32: Int32Array, u32: Uint32Array, i64: BigInt64Array, u64: BigUint64Array, bool: Uint8Array,
};

/** What is wrong with the arguments of a call, or with the device. */
export class ModelError extends Error {
  name = "ModelError";
}

/** Return bytes rounded up to words, as WebGPU copies and binds them. */
const words = (size) => Math.max(Math.ceil(size / 4) * 4, 4);

async function read(source, what) {
  if (source instanceof ArrayBuffer) return source;
  const response = await fetch(new URL(source, import.meta.url));
  if (!response.ok) throw new ModelError(`${what}: the server answers ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

/** Return a device with the limits that the model needs. */
async function openDevice(limits) {
  if (!globalThis.navigator?.gpu) throw new ModelError("this browser has no WebGPU");
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new ModelError("WebGPU has no device here");
  for (const [name, needed] of Object.entries(limits))
    if (adapter.limits[name] < needed) throw new ModelError(`the model needs ${name} ${needed}, the device has ${adapter.limits[name]}`);
  return adapter.requestDevice({ requiredLimits: limits });
}

/**
 * Open the model. Options: `weights`, where they are (a URL, or the content as an ArrayBuffer); `device`, a GPUDevice
 * of yours, which must have the limits of the model.
 */
export async function load(options = {}) {
  const facts = JSON.parse(new TextDecoder().decode(await read("model.json", "model.json")));
  const weights = await read(options.weights ?? "model.weights", "the weights");
  if (weights.byteLength !== facts.weightsBytes)
    throw new ModelError(`the weights have ${weights.byteLength} bytes, expected ${facts.weightsBytes}`);
  const device = options.device ?? (await openDevice(facts.limits));
  device.pushErrorScope("validation");
  const model = new Model(device, facts, weights);
  await model.prepare();
  const error = await device.popErrorScope();
  if (error) throw new ModelError(`the device does not take the model: ${error.message}`);
  return model;
}

class Model {
  constructor(device, facts, weights) {
    this.device = device;
    this.facts = facts;
    this.lost = null;
    this.last = Promise.resolve(); // the call before: calls share memory, and run one after another
    device.lost.then((info) => { this.lost = info.message || info.reason; });
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = (size) => device.createBuffer({ size: Math.max(words(size), 16), usage });
    this.buffers = [buffer(facts.arena), buffer(facts.tensors), buffer(facts.scratch)];
    for (const [offset, size] of facts.weights) {
      const target = buffer(size);
      const bytes = new Uint8Array(words(size));
      bytes.set(new Uint8Array(weights, offset, size));
      device.queue.writeBuffer(target, 0, bytes);
      this.buffers.push(target);
    }
    this.staging = device.createBuffer({ size: words(facts.tensors), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  }

  get inputs() { return this.facts.inputs; }
  get outputs() { return this.facts.outputs; }

  /** Make the pipelines, and the groups of what their launches work on. */
  async prepare() {
    const { device, facts } = this;
    const layouts = new Map();
    const layout = ({ bindings, scalars }) => {
      const key = `${bindings} ${scalars}`;
      if (!layouts.has(key)) {
        const type = (i) => (scalars && i === bindings - 1 ? "read-only-storage" : "storage");
        const entries = Array.from({ length: bindings }, (_, i) => ({ binding: i, visibility: GPUShaderStage.COMPUTE, buffer: { type: type(i) } }));
        layouts.set(key, device.createBindGroupLayout({ entries }));
      }
      return layouts.get(key);
    };
    const pipelines = await Promise.all(facts.kernels.map((kernel) => device.createComputePipelineAsync({
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout(kernel)] }),
      compute: { module: device.createShaderModule({ code: kernel.code }), entryPoint: kernel.entry },
    })));
    this.steps = facts.steps.map((step) => {
      if (step.copy) return step;
      const resources = step.ranges.map(([buffer, offset, size]) => ({ buffer: this.buffers[buffer], offset, size }));
      if (step.scalars.length) resources.push({ buffer: this.scalars(step.scalars) });
      const group = device.createBindGroup({
        layout: layout(facts.kernels[step.kernel]), entries: resources.map((resource, binding) => ({ binding, resource })),
      });
      return { pipeline: pipelines[step.kernel], group, grid: step.grid };
    });
  }

  scalars(numbers) {
    const buffer = this.device.createBuffer({ size: 4 * Math.max(numbers.length, 4), usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
    this.device.queue.writeBuffer(buffer, 0, new Int32Array(numbers));
    return buffer;
  }

  /** Run the model on an array for each input; return `{data, dims}` for each output. */
  run(feeds) {
    const result = this.last.then(() => this.call(feeds));
    this.last = result.catch(() => {});
    return result;
  }

  async call(feeds) {
    const { device, facts } = this;
    if (this.lost) throw new ModelError(`the device is lost: ${this.lost}`);
    for (const name of Object.keys(feeds))
      if (!facts.inputs.some((each) => each.name === name)) throw new ModelError(`'${name}' is no input of the model: ${facts.inputs.map((each) => each.name).join(", ")}`);
    for (const input of facts.inputs) this.upload(input, feeds[input.name]);
    const encoder = device.createCommandEncoder();
    let pass = null;
    for (const step of this.steps) {
      if (step.copy) {
        pass?.end();
        pass = null;
        const [[source, from], [target, to, size]] = step.copy;
        encoder.copyBufferToBuffer(this.buffers[source], from, this.buffers[target], to, words(size));
        continue;
      }
      pass ??= encoder.beginComputePass();
      pass.setPipeline(step.pipeline);
      pass.setBindGroup(0, step.group);
      pass.dispatchWorkgroups(...step.grid);
    }
    pass?.end();
    const filled = facts.outputs.filter((output) => output.bytes);
    for (const { offset, bytes } of filled) encoder.copyBufferToBuffer(this.buffers[1], offset, this.staging, offset, words(bytes));
    device.queue.submit([encoder.finish()]);
    await this.staging.mapAsync(GPUMapMode.READ);
    const mapped = this.staging.getMappedRange();
    const results = facts.outputs.map(({ name, type, dims, offset, bytes }) =>
      [name, { data: new ARRAYS[type](mapped.slice(offset, offset + bytes)), dims: [...dims] }]);
    this.staging.unmap();
    return Object.fromEntries(results);
  }

  upload({ name, type, dims, offset, bytes }, array) {
    const kind = ARRAYS[type];
    if (!(array instanceof kind)) throw new ModelError(`'${name}': expected a ${kind.name}, found ${array?.constructor?.name ?? array}`);
    const count = dims.reduce((product, dim) => product * dim, 1);
    if (array.length !== count) throw new ModelError(`'${name}': expected ${count} elements, [${dims}], found ${array.length}`);
    if (!bytes) return;
    const padded = new Uint8Array(words(bytes));
    padded.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    this.device.queue.writeBuffer(this.buffers[1], offset, padded);
  }

  /** Give the memory of the device back. */
  close() {
    for (const buffer of [...this.buffers, this.staging]) buffer.destroy();
  }
}
