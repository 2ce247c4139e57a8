import type { StatefulModel } from "./index.js";

export interface GeneratorOptions {
  /** End an answer after so many tokens; 0, the default, for no limit. */
  max_new_tokens?: number;
  /** End after so many tokens, those of the prompt included. */
  max_length?: number;
  /** Tokens that end an answer. */
  ends?: number[];
  /** Draw tokens at random, from the softmax of the logits; otherwise the most probable one is taken. */
  do_sample?: boolean;
  /** Divides the logits: more than 1 is more random. */
  temperature?: number;
  /** Draw from so many most probable tokens; 0 for all. */
  top_k?: number;
  /** Draw from the fewest tokens whose probabilities add up to this. */
  top_p?: number;
  /** Draw from tokens with at least this share of the largest probability. */
  min_p?: number;
  /** Makes drawn tokens repeatable. */
  seed?: number;
  repetition_penalty?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
  no_repeat_ngram_size?: number;
  /** No end before there are so many tokens. */
  min_length?: number;
  /** Most tokens of a prompt in one call: 512. */
  chunk_size?: number;
  /** Most tokens of a sequence, of the model's context. */
  context?: number;
  /** Tokens that the caches have room for at first. */
  capacity?: number;
  /** The names of inputs and outputs, if they are not those that exporters give. */
  names?: Partial<Record<"tokens" | "mask" | "positions" | "pastLength" | "totalLength" | "logits", string>>;
  /** The caches, outputs by inputs, of a model that does not update them in place. */
  pairs?: Record<string, string>;
  /** States of a fixed size, outputs by inputs. */
  states?: Record<string, string>;
  /** Further inputs, the same in each call. */
  inputs?: Record<string, unknown>;
}

/** Generates one sequence of tokens; only what the caches do not hold is computed. */
export class Generator {
  constructor(model: StatefulModel, options?: GeneratorOptions);
  /** The tokens so far. */
  readonly tokens: number[];
  /** How many tokens the model has. */
  readonly vocabulary: number;
  /** Whether the answer has ended. */
  readonly isDone: boolean;
  append(tokens: Iterable<number | bigint>): void;
  /** The logits of the next token. */
  logits(): Promise<Float32Array>;
  /** Compute and return the next token. */
  next(): Promise<number>;
  /** Append a prompt and yield the tokens that follow, until the end, which is one of them. */
  stream(prompt?: Iterable<number | bigint>): AsyncGenerator<number, void, void>;
  generate(prompt?: Iterable<number | bigint>): Promise<number[]>;
  /** Forget all tokens but the first `length`. */
  rewind(length: number): Promise<void>;
  /** A generator that continues from here on its own. */
  fork(options?: GeneratorOptions): Promise<Generator>;
  /** Give the memory of the caches back. */
  close(): Promise<void>;
}
