// Threads of a model: workers with instances of its module, which have the same memory.
import { ModelError, signature } from "./call.js";

const PAGES = 1024; // of memory at first, as the module was linked, and the most there may be
const MOST_PAGES = [65535, 32768, 16384, 8192];
const STACK = 1 << 18; // bytes for each worker: kernels have at most 16 KiB of arrays on it
const ISOLATED = "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp";
const isNode = globalThis.process?.versions?.node !== undefined;
const isPage = !isNode && typeof WorkerGlobalScope === "undefined";

/** Return how many threads a model gets, and the reason why not as many as it was compiled for. */
export async function planThreads(wanted = signature.threads) {
  if (!Number.isSafeInteger(wanted) || wanted < 1) throw new ModelError(`threads: expected a number from 1 on, found ${wanted}`);
  const most = signature.threads;
  if (most === 1) return { threads: 1, reason: "the model was compiled for one thread: mirlo compile --threads N" };
  if (wanted === 1) return { threads: 1, reason: "the options of load say so" };
  if (typeof SharedArrayBuffer === "undefined" || globalThis.crossOriginIsolated === false)
    return { threads: 1, reason: `the page is not isolated: its server has to send the headers ${ISOLATED}` };
  const cores = isNode ? (await import("node:os")).availableParallelism() : navigator.hardwareConcurrency ?? 1;
  const threads = Math.min(wanted, most, cores);
  const reasons = { [most]: "", [cores]: `there ${cores === 1 ? "is one core" : `are ${cores} cores`}`, [wanted]: "the options of load say so" };
  return { threads, reason: threads === most ? "" : reasons[threads] };
}

/** Return a memory that threads share, as large as the system lets it become. */
export function newMemory() {
  for (const maximum of MOST_PAGES)
    try {
      return new WebAssembly.Memory({ initial: PAGES, maximum, shared: true });
    } catch (error) {
      if (maximum === MOST_PAGES.at(-1)) throw new ModelError(`there is no memory that threads can share: ${error.message}`);
    }
}

/** Start workers that help the calls of an instance; if one does not start, there is one thread. Returns how to end them. */
export async function startThreads(module, exports, imports, threads, reason) {
  const workers = [];
  const close = () => workers.splice(0).forEach((worker) => worker.terminate());
  const names = Object.entries(imports).map(([group, functions]) => [group, Object.keys(functions).filter((name) => name !== "memory")]);
  exports.start_pool(threads - 1, isPage ? 0 : 1);
  try {
    const start = await starter();
    const ready = Array.from({ length: threads - 1 }, (_, id) => {
      const low = exports.allocate(STACK);
      if (!low) throw new ModelError("there is no memory for its stack");
      return start(workers, { module, memory: exports.memory, names, stack: low + STACK, id });
    });
    await Promise.all(ready);
  } catch (error) {
    close();
    return { threads: 1, reason: `a worker did not start: ${error.message}`, close };
  }
  return { threads, reason, close };
}

/** Return a function that starts a worker, adds it to a list, and waits until it is ready. */
async function starter() {
  const url = new URL("./thread.js", import.meta.url);
  const Thread = isNode ? (await import("node:worker_threads")).Worker : Worker;
  return (workers, message) =>
    new Promise((resolve, reject) => {
      const worker = new Thread(url, { type: "module" });
      workers.push(worker);
      const answer = (problem) => {
        if (isNode) worker.unref(); // the program may end
        if (problem) reject(new ModelError(problem));
        else resolve();
      };
      if (isNode) worker.on("message", answer).on("error", reject);
      else {
        worker.onmessage = ({ data }) => answer(data);
        worker.onerror = (event) => reject(new ModelError(event.message || `${url} cannot be run`));
      }
      worker.postMessage(message);
    });
}
