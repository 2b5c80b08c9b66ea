// The exact softmax over words, as elmore/model/native_softmax.py runs it.

import { dense, unpack } from "./safetensors.js";

const MAX_POSITIONS = 32; // whose distributions over words are held at a time

// Full, or adaptive: with cutoffs, the head has the frequent words and one entry
// per tail, and a tail has its own softmax in fewer dimensions.
export class Softmax {
  #library; #head; #tails; #cutoffs;

  constructor(library, tensors, cutoffs) {
    this.#library = library;
    this.#cutoffs = cutoffs;
    const part = (prefix, width) => ({
      weight: library.pack(unpack(tensors[`${prefix}weight`], width)), bias: dense(tensors[`${prefix}bias`]),
    });
    this.#head = part(cutoffs.length ? "softmax.head." : "softmax.");
    this.#tails = cutoffs.map((_, i) => {
      const projection = library.pack(tensors[`softmax.tails.${i}.projection.weight`]);
      return { projection, ...part(`softmax.tails.${i}.softmax.`, projection.height) };
    });
  }

  // The log-probability of the target at each position, from states (positions, D).
  score(states, targets) {
    const dim = this.#head.weight.width, scores = [];
    for (let first = 0; first < targets.length; first += MAX_POSITIONS) {
      const some = targets.slice(first, first + MAX_POSITIONS);
      const rows = states.subarray(first * dim, (first + some.length) * dim);
      scores.push(...this.#library.work(() => this.#scoreSome(rows, some)));
    }
    return scores;
  }

  #scoreSome(states, targets) {
    const dim = this.#head.weight.width, rows = this.#library.lend(states);
    const tails = targets.map((target) => this.#cutoffs.filter((cutoff) => target >= cutoff).length);
    const head = this.#logProbs(this.#head, rows, targets.length);
    const entries = targets.map((target, i) => (tails[i] ? this.#cutoffs[0] + tails[i] - 1 : target));
    return targets.map((target, i) => {
      const score = head[i][entries[i]];
      if (!tails[i]) return score;
      const tail = this.#tails[tails[i] - 1];
      const projected = this.#library.multiply(tail.projection, rows + 4 * i * dim, 1);
      return score + this.#logProbs(tail, projected, 1)[0][target - this.#cutoffs[tails[i] - 1]];
    });
  }

  // The log-probability of every word, from one state (D).
  logProbs(state) {
    return this.#library.work(() => {
      const rows = this.#library.lend(state), [head] = this.#logProbs(this.#head, rows, 1);
      const parts = this.#tails.map((tail, i) => {
        const [words] = this.#logProbs(tail, this.#library.multiply(tail.projection, rows, 1), 1);
        return words.map((value) => value + head[this.#cutoffs[0] + i]);
      });
      return Float32Array.from([head.subarray(0, this.#cutoffs[0] ?? head.length), ...parts]
        .flatMap((part) => [...part]));
    });
  }

  // The normalised logits of positions; copies, because further calls may move the memory.
  #logProbs({ weight, bias }, rows, count) {
    const logits = this.#library.floatsAt(
      this.#library.multiply(weight, rows, count, bias), count * weight.height).slice();
    return Array.from({ length: count }, (_, i) => {
      const row = logits.subarray(i * weight.height, (i + 1) * weight.height);
      let largest = -Infinity, sum = 0;
      for (const value of row) if (value > largest) largest = value;
      for (const value of row) sum += Math.exp(value - largest);
      const total = largest + Math.log(sum);
      for (let k = 0; k < row.length; k++) row[k] -= total;
      return row;
    });
  }
}
