// Texts and the vectors of their tokens, which are mixed and compared here, so that the sliders are live.

import { ask } from "./backend.js";

// The kinds of vectors: the layers to ask for, and what a sentence calls them.
export const KINDS = {
  mix: { layers: "all", name: "the mix of the sliders" },
  cloze: { layers: "cloze", name: "what is around the word" },
  whitened: { layers: "whitened", name: "whitened vectors" },
};

export class TextVectors {
  #texts; #tokens; #pending = {}; #means = {};
  #stacks = {}; // by kind: for each text the vectors (layers, tokens, width); only a mix has several layers

  // Strings, or lists of tokens.
  constructor(texts) { this.#texts = texts; }

  get tokens() { return this.#tokens; }
  has(kind) { return kind in this.#stacks; }

  // Fetch a kind of vectors, unless it is here or on its way.
  async load(kind) {
    if (this.has(kind)) return;
    this.#pending[kind] ??= this.#fetch(kind);
    try {
      await this.#pending[kind];
    } finally {
      delete this.#pending[kind];
    }
  }

  async #fetch(kind) {
    const { layers } = KINDS[kind];
    const { sentences } = await ask("embed", { texts: this.#texts, layers });
    this.#tokens = sentences.map(({ tokens }) => tokens);
    this.#stacks[kind] = sentences.map(({ vectors }) => (layers === "all" ? vectors : [vectors])
      .map((layer) => layer.map((row) => Float32Array.from(row))));
  }

  // The weighted sum of the layers of a token, from which `means` are subtracted first, if they are given.
  mix(text, token, { kind, weights, means }) {
    const stack = this.#stacks[kind][text], vector = new Float64Array(stack[0][token].length);
    weights.forEach((weight, layer) => {
      const mean = means?.[layer];
      if (weight) stack[layer][token].forEach((value, i) => { vector[i] += weight * (value - (mean ? mean[i] : 0)); });
    });
    return vector;
  }

  // The mean of all tokens, of every layer.
  means(kind) {
    this.#means[kind] ??= this.#stacks[kind][0].map((_, layer) =>
      meanOf(this.#stacks[kind].flatMap((stack) => stack[layer])));
    return this.#means[kind];
  }
}

function meanOf(rows) {
  const mean = new Float64Array(rows[0]?.length ?? 0);
  for (const row of rows) row.forEach((value, i) => { mean[i] += value / rows.length; });
  return mean;
}

export function cosine(a, b) {
  let product = 0, first = 0, second = 0;
  for (let i = 0; i < a.length; i++) {
    product += a[i] * b[i]; first += a[i] * a[i]; second += b[i] * b[i];
  }
  return first && second ? product / Math.sqrt(first * second) : 0;
}
