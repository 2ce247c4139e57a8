// Helps the instance of a model that runs in another thread: it never returns.
const isNode = globalThis.process?.versions?.node !== undefined;

function listen(port) {
  port.onmessage = async ({ data: { module, memory, names, stack, id } }) => {
    const imports = Object.fromEntries(names.map(([group, functions]) => [group, Object.fromEntries(functions.map((name) => [name, () => 8]))]));
    (imports.env ??= {}).memory = memory;
    try {
      const { exports } = await WebAssembly.instantiate(module, imports);
      exports.__stack_pointer.value = stack;
      port.postMessage("");
      exports.work(id);
    } catch (error) {
      port.postMessage(error.message);
    }
  };
}

if (isNode) import("node:worker_threads").then(({ parentPort }) => listen(parentPort));
else listen(globalThis);
