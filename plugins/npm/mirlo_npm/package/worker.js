// Runs the model for a page: messages are calls of `load` and `run`.
import { load } from "./index.js";

let model;

const methods = {
  async load(options) {
    model = await load({ ...options, onProgress: (...progress) => postMessage({ progress }) });
  },
  run: (feeds) => model.run(feeds),
};

onmessage = async ({ data: { call, method, argument } }) => {
  try {
    const result = await methods[method](argument);
    const buffers = method === "run" ? Object.values(result).map((output) => output.data.buffer) : [];
    postMessage({ call, result }, { transfer: buffers });
  } catch (error) {
    postMessage({ call, error: error.message });
  }
};
