// Runs the model for a page: messages are calls of the methods below.
import { load } from "./index.js";
import { ModelError } from "./call.js";

let model;
const states = new Map(); // by numbers of the page

/** Return a state of the page. */
function stateOf(id) {
  if (!states.has(id)) throw new ModelError("the state is closed");
  return states.get(id);
}

/** Return the result of a state's method, and what the page knows of the state. */
async function answer(state, result) {
  result = await result;
  return { result, length: state.length, capacity: state.capacity };
}

const methods = {
  async load(options) {
    model = await load({ ...options, onProgress: (...progress) => postMessage({ progress }) });
    return { threads: model.threads, reason: model.reason };
  },
  run: (feeds) => model.run(feeds),
  async openState({ id, options }) {
    states.set(id, model.state(options));
  },
  runState: ({ id, feeds, tokens }) => answer(stateOf(id), stateOf(id).run(feeds, tokens)),
  rewindState: ({ id, length }) => answer(stateOf(id), stateOf(id).rewind(length)),
  forkState: ({ id, clone }) => answer(stateOf(id), stateOf(id).fork().then((state) => void states.set(clone, state))),
  async closeState({ id }) {
    await states.get(id)?.close();
    states.delete(id);
  },
};

/** Return the buffers of results, which are handed over without a copy. */
function buffersOf(method, result) {
  const outputs = method === "run" ? result : method === "runState" ? result.result : {};
  return Object.values(outputs).map((output) => output.data.buffer);
}

onmessage = async ({ data: { call, method, argument } }) => {
  try {
    const result = await methods[method](argument);
    postMessage({ call, result }, { transfer: buffersOf(method, result) });
  } catch (error) {
    postMessage({ call, error: error.message });
  }
};
