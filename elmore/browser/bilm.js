// The biLM, as elmore/model/native_bilm.py runs it: characters to token vectors to layers.
// Letters: N distinct words, B sentences, T tokens with boundaries, D width of one direction, L LSTM layers.

import { BEGIN, END, encodeWord } from "./alphabet.js";
import { dense } from "./safetensors.js";

const MAX_ROWS = 16; // sentences of a batch

export class BiLM {
  #library; #config; #tokens; #stacks;

  // `stacks` run the layers of the forward and of the backward direction.
  constructor(library, config, tensors, stacks) {
    this.#library = library;
    this.#config = config;
    this.#tokens = this.#packTokens(tensors);
    this.#stacks = stacks;
  }

  get numLayers() { return this.#config.lstm.num_layers + 1; }
  get width() { return 2 * this.#config.lstm.output_dim; }

  // Run tokenized sentences: for each, all layers as Float32Array (T, 2D), boundaries included.
  async run(sentences) {
    const results = [];
    for (let first = 0; first < sentences.length; first += MAX_ROWS)
      results.push(...await this.#runBatch(sentences.slice(first, first + MAX_ROWS)));
    return results;
  }

  async #runBatch(sentences) {
    const texts = sentences.map((words) => [BEGIN, ...words, END]);
    const numbers = new Map();
    for (const word of texts.flat()) if (!numbers.has(word)) numbers.set(word, numbers.size);
    const vectors = this.#library.work(() => this.#encode([...numbers.keys()]));
    const dim = this.width / 2, lengths = texts.map((words) => words.length), steps = Math.max(...lengths);
    const results = lengths.map((length) => Array.from({ length: this.numLayers },
      () => new Float32Array(length * this.width)));
    // For each token of a direction: its sentence, its step, and where its numbers go in a result.
    const places = (direction) => lengths.flatMap((length, b) => Array.from({ length }, (_, t) => {
      const position = direction ? length - 1 - t : t;
      return { b, t, position, at: position * this.width + direction * dim };
    }));
    await Promise.all([1, 0].map(async (direction) => { // the one in another worker first
      const inputs = new Float32Array(lengths.length * steps * dim); // (B, T, D)
      for (const { b, t, position, at } of places(direction)) {
        const row = numbers.get(texts[b][position]) * dim, vector = vectors.subarray(row, row + dim);
        inputs.set(vector, (b * steps + t) * dim);
        results[b][0].set(vector, at);
      }
      const outputs = await this.#stacks[direction].run(inputs, lengths);
      outputs.forEach((output, layer) => { // (T, B, D)
        for (const { b, t, at } of places(direction)) {
          const row = (t * lengths.length + b) * dim;
          results[b][layer + 1].set(output.subarray(row, row + dim), at);
        }
      });
    }));
    return results;
  }

  // The token vectors (N, D) of distinct words.
  #encode(words) {
    const library = this.#library, cnn = this.#config.characters, count = words.length;
    const { embedding, banks, bias, highways, projection } = this.#tokens;
    const spelled = words.map((word) => encodeWord(word, cnn.max_characters));
    const longest = Math.max(...spelled.map((ids) => ids.length));
    const columns = Math.min(cnn.max_characters, longest + Math.max(...cnn.filters.map(([width]) => width)));
    const characters = new BigInt64Array(count * columns).fill(BigInt(cnn.padding_id));
    spelled.forEach((ids, n) => ids.forEach((id, c) => { characters[n * columns + c] = BigInt(id); }));
    const size = banks.reduce((sum, bank) => sum + bank.height, 0);
    let x = library.scratch(4 * count * size);
    library.runCharCNN(banks, {
      bias, embedding, characters: library.lend(characters), out: x, num_words: count,
      num_characters: columns, embedding_dim: cnn.embedding_dim, num_filters: size,
    });
    if (cnn.activation === "tanh") library.runTanh(x, count * size);
    else library.floatsAt(x, count * size).forEach((value, i, all) => { if (value < 0) all[i] = 0; });
    for (const { gate, transform } of highways) {
      const out = library.scratch(4 * count * size);
      const linear = ({ weight, bias: own }) => library.multiply(weight, x, count, own);
      library.runHighway({ gate: linear(gate), transform: linear(transform), x, out, count: count * size });
      x = out;
    }
    if (projection) x = library.multiply(projection.weight, x, count, projection.bias);
    return library.floatsAt(x, count * this.width / 2).slice();
  }

  #packTokens(tensors) {
    const library = this.#library, cnn = this.#config.characters, prefix = "tokens.characters";
    const linear = (name) =>
      ({ weight: library.pack(tensors[`${name}.weight`]), bias: dense(tensors[`${name}.bias`]) });
    const names = cnn.filters.map((_, i) => `${prefix}.convolutions.${i}`);
    return {
      embedding: library.keep(dense(tensors[`${prefix}.embedding.weight`])),
      banks: names.map((name) => library.pack(asWindows(tensors[`${name}.weight`]))),
      bias: library.keep(Float32Array.from(names.flatMap((name) => [...dense(tensors[`${name}.bias`])]))),
      highways: Array.from({ length: cnn.num_highways }, (_, i) => ({
        gate: linear(`${prefix}.highways.${i}.gate`), transform: linear(`${prefix}.highways.${i}.transform`),
      })),
      projection: this.#config.projection ? linear("tokens.projection") : null,
    };
  }
}

// Filters (n, E, width) as rows (n, width * E): a window in memory is letter after letter.
function asWindows(tensor) {
  const [count, dim, width] = tensor.shape, from = dense(tensor), data = new Float32Array(from.length);
  for (let n = 0, i = 0; n < count; n++)
    for (let e = 0; e < dim; e++)
      for (let w = 0; w < width; w++) data[(n * width + w) * dim + e] = from[i++];
  return { data, scales: null, shape: [count, width * dim] };
}
