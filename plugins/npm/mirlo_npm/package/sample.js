// The choice of a token from the logits of one position.
import { ModelError } from "./call.js";

const LEAST_TEMPERATURE = 1e-6; // lower ones are the same as this one
const whole = (least) => [(value) => Number.isSafeInteger(value) && value >= least, `a number from ${least} on`];
const OPTIONS = {
  do_sample: [(value) => typeof value === "boolean", "true or false"],
  temperature: [(value) => value >= 0 && value < Infinity, "a number from 0 on"],
  top_k: whole(0),
  top_p: [(value) => value > 0 && value <= 1, "a number above 0, at most 1"],
  min_p: [(value) => value >= 0 && value <= 1, "a number from 0 to 1"],
  repetition_penalty: [(value) => value > 0 && value < Infinity, "a number above 0"],
  frequency_penalty: [Number.isFinite, "a number"],
  presence_penalty: [Number.isFinite, "a number"],
  no_repeat_ngram_size: whole(0),
  min_length: whole(0),
  max_length: whole(0),
  max_new_tokens: whole(0),
  chunk_size: whole(1),
  seed: whole(0),
  ends: [(value) => Array.isArray(value) && value.every(Number.isSafeInteger), "an array of tokens"],
  context: whole(1),
  capacity: whole(1),
  names: [(value) => typeof value === "object", "names of inputs and outputs"],
  pairs: [(value) => typeof value === "object", "outputs by inputs"],
  states: [(value) => typeof value === "object", "outputs by inputs"],
  inputs: [(value) => typeof value === "object", "arrays by inputs"],
};

/** Refuse options of a generator that there are not, and values that fit none. */
export function checkOptions(options) {
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(OPTIONS, name)) throw new ModelError(`no option of a generator is named '${name}'; there are ${Object.keys(OPTIONS).join(", ")}`);
    const [fits, expected] = OPTIONS[name];
    if (value === null || !fits(value)) throw new ModelError(`${name}: expected ${expected}, found ${value}`);
  }
}

/** Return a function of random numbers from 0 to 1, the same for each seed: sfc32, of Chris Doty-Humphrey's PractRand. */
export function randomNumbers(seed) {
  let [a, b, c, counter] = [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0, 0x9e3779b9, 1];
  const next = () => {
    const result = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + result) | 0;
    return result >>> 0;
  };
  for (let i = 0; i < 16; ++i) next();
  return () => (next() * 2 ** 21 + (next() >>> 11)) / 2 ** 53;
}

/** Chooses the tokens of a sequence. */
export class Sampler {
  #options;
  #random;

  constructor(options) {
    this.#options = {
      do_sample: false, temperature: 1, top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1, frequency_penalty: 0, presence_penalty: 0,
      no_repeat_ngram_size: 0, min_length: 0, ends: [], ...options,
    };
    const { do_sample, temperature, top_k } = this.#options;
    if (do_sample && temperature > 0 && top_k !== 1) this.#random = randomNumbers(options.seed ?? Math.floor(Math.random() * 2 ** 53));
  }

  /** Return the token that follows `tokens`, of which the first `prompt` are given. */
  choose(logits, tokens, prompt) {
    const values = this.penalized(logits, tokens, prompt);
    let top = 0;
    for (let i = 1; i < values.length; ++i) if (values[i] > values[top]) top = i;
    if (!Number.isFinite(values[top]))
      throw new ModelError(Number.isFinite(logits.reduce((most, value) => Math.max(most, value))) ? "no token may follow: min_length, no_repeat_ngram_size and penalties leave none" : "the model's logits are not finite");
    if (!this.#random) return top;
    const candidates = this.candidates(values);
    let left = this.#random() * candidates.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [token, weight] of candidates) if ((left -= weight) < 0) return token;
    return candidates.at(-1)[0];
  }

  /** Return the logits after penalties. */
  penalized(logits, tokens, prompt) {
    const options = this.#options;
    const values = Float32Array.from(logits);
    if (options.repetition_penalty !== 1)
      for (const token of new Set(tokens)) values[token] = values[token] > 0 ? values[token] / options.repetition_penalty : values[token] * options.repetition_penalty;
    const generated = tokens.slice(prompt);
    for (const token of generated) values[token] -= options.frequency_penalty;
    for (const token of new Set(generated)) values[token] -= options.presence_penalty;
    const size = options.no_repeat_ngram_size;
    if (size && tokens.length >= size) {
      const last = tokens.slice(tokens.length - size + 1);
      for (let i = 0; i + size <= tokens.length; ++i)
        if (last.every((token, k) => token === tokens[i + k])) values[tokens[i + size - 1]] = -Infinity;
    }
    if (tokens.length < options.min_length) for (const token of options.ends) values[token] = -Infinity;
    return values;
  }

  /** Return the tokens that may be drawn, and the weight of each: its share of the largest probability. */
  candidates(logits) {
    const { temperature, top_k, top_p, min_p } = this.#options;
    const least = top_k && top_k < logits.length ? largest(logits, top_k) : -Infinity; // equal ones are all kept
    const top = logits.reduce((most, value) => Math.max(most, value), -Infinity);
    const divisor = Math.max(temperature, LEAST_TEMPERATURE);
    let tokens = [];
    let total = 0;
    for (let token = 0; token < logits.length; ++token) {
      if (logits[token] < least || logits[token] === -Infinity) continue;
      const weight = Math.exp((logits[token] - top) / divisor);
      total += weight;
      tokens.push([token, weight]);
    }
    if (top_p < 1) {
      // All tokens below this weight together have less than the share that is left out: only the others are sorted.
      const bound = ((1 - top_p) * total) / tokens.length;
      tokens = tokens.filter(([, weight]) => weight >= bound).sort(([a, v], [b, w]) => w - v || a - b);
      // The first token whose predecessors have the share already is the first that is left out.
      let sum = 0;
      const end = tokens.findIndex(([, weight]) => sum >= top_p * total || ((sum += weight), false));
      if (end >= 0) tokens.length = end;
    }
    return min_p > 0 ? tokens.filter(([, weight]) => weight >= min_p) : tokens;
  }
}

/** Return the value of this rank, 1 for the largest one. */
function largest(values, rank) {
  const best = []; // the largest ones so far, in ascending order
  for (const value of values) {
    if (best.length === rank && value <= best[0]) continue;
    let place = best.length;
    while (place > 0 && best[place - 1] > value) --place;
    best.splice(place, 0, value);
    if (best.length > rank) best.shift();
  }
  return best[0];
}
