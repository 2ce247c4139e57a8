// Tokens from a language model: `new Generator(model, options)`, `for await (const token of generator.stream(prompt))`.
import { ARRAYS, ModelError, signature } from "./call.js";
import { Sampler, checkOptions } from "./sample.js";

/** The names that exporters give inputs and outputs. */
export const NAMES = {
  tokens: "input_ids", mask: "attention_mask", positions: "position_ids", pastLength: "past_sequence_length",
  totalLength: "total_sequence_length", logits: "logits",
};
const LAST_ONLY = ["num_logits_to_keep", "logits_to_keep"]; // for how many last positions logits are computed; 0 is all
const LAST_ROWS = "last_rows"; // its size says of how many last positions logits are computed

/** Return what computes each input of a model from the new tokens and the number of earlier ones. */
function makers(names, known) {
  const filled = (spec, dims, value) => {
    const kind = ARRAYS[spec.type];
    const sizes = spec.dims.map((dim, axis) => (typeof dim === "number" ? dim : dims[axis] ?? 1));
    return { data: kind.from({ length: sizes.reduce((product, dim) => product * dim, 1) }, (_, i) => (spec.type.endsWith("64") ? BigInt(value(i)) : value(i))), dims: sizes };
  };
  const all = {
    [names.tokens]: (spec) => (tokens) => filled(spec, [1, tokens.length], (i) => tokens[i]),
    [names.mask]: (spec) => (tokens, past) => filled(spec, [1, past + tokens.length], () => 1),
    [names.positions]: (spec) => (tokens, past) => filled(spec, [1, tokens.length], (i) => past + i),
    [names.pastLength]: (spec) => (tokens, past) => filled(spec, [1], () => past),
    [names.totalLength]: (spec) => (tokens, past) => filled(spec, [1], () => past + tokens.length),
    use_cache_branch: (spec) => (tokens, past) => filled(spec, [1], () => (past > 0 ? 1 : 0)),
    [LAST_ROWS]: (spec) => () => filled(spec, [1], () => 0),
    ...Object.fromEntries(LAST_ONLY.map((name) => [name, (spec) => () => filled(spec, [1], () => 0)])),
  };
  const result = {};
  for (const spec of signature.inputs) {
    if (known.has(spec.name)) continue;
    if (!all[spec.name]) throw new ModelError(`the input '${spec.name}' is not known: name the model's in {names}, its caches in {pairs, states}, or give its value in {inputs}; there are ${Object.keys(all).join(", ")}`);
    result[spec.name] = all[spec.name](spec);
  }
  return result;
}

/** Generates one sequence of tokens; only what the caches do not hold is computed. */
export class Generator {
  #model;
  #options;
  #state;
  #makers;
  #sampler;
  #constants;
  #logits; // the spec of the logits
  #prompt = 0; // tokens up to the end of the last prompt
  #row = null; // the logits behind the tokens that the caches hold

  /** The tokens so far. */
  tokens = [];

  /** See `generate.d.ts` for the options, which have the names and meanings of Hugging Face's generation. */
  constructor(model, options = {}, state = undefined) {
    checkOptions(options);
    this.#model = model;
    this.#options = { max_new_tokens: 0, max_length: 0, chunk_size: 512, ends: [], ...options };
    const { pairs, states = {}, capacity, context, inputs = {} } = options;
    const names = { ...NAMES, ...options.names };
    this.#logits = signature.outputs.find(({ name }) => name === names.logits);
    if (this.#logits?.type !== "f32" || this.#logits.dims.length !== 3 || typeof this.#logits.dims[2] !== "number")
      throw new ModelError(`there are no logits f32[batch, length, vocabulary] named '${names.logits}'; there are ${signature.outputs.map(({ name }) => name).join(", ")}`);
    if (!signature.inputs.some(({ name }) => name === names.tokens)) throw new ModelError(`there is no input '${names.tokens}' of tokens: name it, {names: {tokens: ...}}`);
    const cached = pairs ? Object.keys(pairs) : signature.caches.map(([input]) => input);
    this.#constants = inputs;
    this.#makers = makers(names, new Set([...cached, ...Object.keys(states), ...Object.keys(inputs)]));
    this.#sampler = new Sampler(this.#options);
    const sizes = { ...(capacity && { capacity }), ...(context && { limit: context }) };
    this.#state = state ?? model.state({ ...(pairs && { pairs }), states, ...sizes });
  }

  /** How many tokens the model has. */
  get vocabulary() {
    return this.#logits.dims[2];
  }

  /** Whether the answer has ended: with a token of `ends`, or as it may have no more tokens. */
  get isDone() {
    const { tokens } = this;
    return (tokens.length > this.#prompt && this.#options.ends.includes(tokens.at(-1))) || this.#room() <= 0;
  }

  #room() {
    const { max_new_tokens, max_length, context } = this.#options;
    const most = Math.min(max_length || Infinity, context || Infinity) - this.tokens.length;
    return max_new_tokens ? Math.min(most, max_new_tokens - (this.tokens.length - this.#prompt)) : most;
  }

  /** Append the tokens of a prompt, or of a part of the answer that was chosen elsewhere. */
  append(tokens) {
    const added = Array.from(tokens, Number);
    const wrong = added.find((token) => !Number.isSafeInteger(token) || token < 0 || token >= this.vocabulary);
    if (wrong !== undefined) throw new ModelError(`a token must be from 0 to ${this.vocabulary - 1}, found ${wrong}`);
    this.tokens.push(...added);
    this.#prompt = this.tokens.length;
  }

  /** Return the logits of the next token. */
  async logits() {
    const { tokens } = this;
    if (!tokens.length) throw new ModelError("there are no tokens yet: append a prompt first");
    if (this.#row && this.#state.length === tokens.length) return this.#row;
    // The logits of the last token are needed, so it is computed again if the caches hold it.
    if (this.#state.length >= tokens.length) await this.#state.rewind(tokens.length - 1);
    while (this.#state.length < tokens.length) {
      const past = this.#state.length;
      const part = tokens.slice(past, past + this.#options.chunk_size);
      const inputs = { ...this.#constants };
      for (const [name, make] of Object.entries(this.#makers)) inputs[name] = make(part, past);
      const { data } = (await this.#state.run(inputs, part.length))[this.#logits.name];
      this.#row = data.slice(-this.vocabulary);
    }
    return this.#row;
  }

  /** Compute and return the next token. */
  async next() {
    if (this.isDone) throw new ModelError("the answer has ended: append tokens, or rewind");
    const token = this.#sampler.choose(await this.logits(), this.tokens, this.#prompt);
    this.tokens.push(token);
    return token;
  }

  /** Append a prompt and yield the tokens that follow, until the end, which is one of them. */
  async *stream(prompt = undefined) {
    if (prompt) this.append(prompt);
    while (!this.isDone) yield await this.next();
  }

  /** Append a prompt and return the tokens that follow, until the end, which is one of them. */
  async generate(prompt = undefined) {
    const answer = [];
    for await (const token of this.stream(prompt)) answer.push(token);
    return answer;
  }

  /** Forget all tokens but the first `length`. */
  async rewind(length) {
    if (!Number.isSafeInteger(length) || length < 0 || length > this.tokens.length)
      throw new ModelError(`cannot go back to ${length} tokens: there are ${this.tokens.length}`);
    this.tokens.length = length;
    this.#prompt = Math.min(this.#prompt, length);
    this.#row = null;
    if (length < this.#state.length) await this.#state.rewind(length);
  }

  /** Return a generator that continues from here on its own, with changes to the options. */
  async fork(options = {}) {
    checkOptions(options);
    const clone = new Generator(this.#model, { ...this.#options, ...options }, await this.#state.fork());
    clone.tokens = [...this.tokens];
    clone.#prompt = this.#prompt;
    clone.#row = this.#row;
    return clone;
  }

  /** Give the memory of the caches back. */
  async close() {
    await this.#state.close();
  }
}
