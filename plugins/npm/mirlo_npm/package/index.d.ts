export interface Tensor<A> {
  data: A;
  dims: number[];
}

export interface Inputs {
INPUTS
}

export interface Outputs {
OUTPUTS
}

/** The inputs that calls update in place, and the outputs that are their next values. */
export type CacheInput = CACHED;
export type CacheOutput = UPDATED;

export interface Spec {
  name: string;
  type: string;
  dims: (number | string)[];
}

export interface LoadOptions {
  /** Where the weights are: a URL, or their content. */
  weights?: string | URL | ArrayBuffer | ArrayBufferView;
  /** Where the module is, likewise. */
  module?: string | URL | ArrayBuffer | ArrayBufferView;
  /** At most so many threads; all that the model was compiled for, if the page is isolated. */
  threads?: number;
  /** Called with the bytes that are loaded, and how many there are. */
  onProgress?: (loaded: number, total: number) => void;
  signal?: AbortSignal;
}

export interface StateOptions {
  /** Tokens that there is room for at first, 256; the room doubles when it is used up. */
  capacity?: number;
  /** Sequences, 1. */
  batch?: number;
  /** Most tokens. */
  limit?: number;
}

export interface OtherStateOptions extends StateOptions {
  /** Caches [batch, heads, rows, size], outputs by inputs, if they are not those that calls update in place. */
  pairs?: Record<string, string>;
  /** States of a fixed size, outputs by inputs, which calls replace. */
  states?: Record<string, string>;
}

/** What a sequence of calls keeps in the module's memory. */
export interface State<I, O> {
  /** Tokens that the caches hold. */
  readonly length: number;
  /** Tokens that there is room for. */
  readonly capacity: number;
  /** Run the model on its other inputs, which are for so many new tokens; return its other outputs. */
  run(inputs: I, tokens: number): Promise<O>;
  /** Forget all tokens but the first `length`, or the last `-length`; return how many are left. */
  rewind(length: number): Promise<number>;
  /** A state that holds a copy of the same tokens and continues on its own. */
  fork(): Promise<State<I, O>>;
  /** Give the memory back. */
  close(): Promise<void>;
}

export interface StatefulModel {
  state(options?: StateOptions): State<Omit<Inputs, CacheInput>, Omit<Outputs, CacheOutput>>;
  state(options: OtherStateOptions): State<Partial<Inputs>, Partial<Outputs>>;
}

export interface Model extends StatefulModel {
  readonly inputs: Spec[];
  readonly outputs: Spec[];
  /** How many threads calls use. */
  readonly threads: number;
  /** Why these are not as many as the model was compiled for; otherwise an empty text. */
  readonly reason: string;
  run(inputs: Inputs): Promise<Outputs>;
  /** End the threads of the model, and its worker. */
  close(): void;
}

export const signature: { name: string; inputs: Spec[]; outputs: Spec[]; needs: string[]; threads: number; caches: [CacheInput, CacheOutput][] };
export class ModelError extends Error {
  name: "ModelError";
}
export function load(options?: LoadOptions): Promise<Model>;
export function loadInWorker(options?: Omit<LoadOptions, "signal">): Promise<Model>;
