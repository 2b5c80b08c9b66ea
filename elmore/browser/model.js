// A model that answers the requests of the page, in the shapes of the HTTP API (elmore/serve/schemas.py).

import { BiLM } from "./bilm.js";
import { fetchBytes, fetchSettings } from "./model_files.js";
import { NativeLibrary } from "./native.js";
import { readTensors } from "./safetensors.js";
import { Softmax } from "./softmax.js";
import { RemoteStack, Stack } from "./stack.js";
import { tokenize } from "./tokenizer.js";
import { Whitening } from "./whitening.js";

const WHITENING_FILE = "whitening.safetensors";
const BOUNDARIES = ["<S>", "</S>"], UNKNOWN = "<UNK>", MARKS = [...BOUNDARIES, UNKNOWN];
const MAX_TOKENS = 2048, MAX_TOTAL = 8192; // of a text and of all texts, as a server has them
const OLD_BROWSER = "this browser is too old for the page, which needs WebAssembly SIMD: use Chrome 112, "
  + "Firefox 116, Safari 17 or newer";

export async function loadModel(report) {
  const settings = await fetchSettings();
  const { files } = settings, total = files["model.safetensors"].bytes;
  const wasm = await fetchBytes("elmore.wasm", files["elmore.wasm"]);
  const library = await startLibrary(wasm);
  const megabytes = (count) => (count / 1e6).toFixed(0);
  const weights = await fetchBytes("model.safetensors", files["model.safetensors"], (count) =>
    report(`Loading the model: ${megabytes(count)} of ${megabytes(total)} MB`));
  const tensors = readTensors(weights, "model.safetensors");
  if (files["softmax.safetensors"]) {
    const more = await fetchBytes("softmax.safetensors", files["softmax.safetensors"]);
    Object.assign(tensors, readTensors(more, "softmax.safetensors"));
  }
  const words = files["vocabulary.txt"] && settings.cutoffs
    ? new TextDecoder().decode(await fetchBytes("vocabulary.txt", files["vocabulary.txt"])) : null;
  report("Preparing the model …");
  return Model.create(settings, library, tensors, words && words.trimEnd().split("\n"));
}

async function startLibrary(wasm) {
  try {
    tokenize(""); // its regular expression has the newest syntax
    if (!WebAssembly.validate(wasm)) throw new Error();
  } catch {
    throw new Error(OLD_BROWSER);
  }
  const module = await WebAssembly.compile(wasm);
  return { module, native: new NativeLibrary(await WebAssembly.instantiate(module)) };
}

class Model {
  #settings; #native; #bilm; #softmax; #words; #numbers; #whitening; #last = {};

  static async create(settings, { module, native }, tensors, words) {
    const model = new Model(), { lstm } = settings.model;
    model.#settings = settings;
    model.#native = native;
    const backward = new RemoteStack(module, lstm, tensors, 1);
    model.#bilm = new BiLM(native, settings.model, tensors, [new Stack(native, lstm, tensors, 0), backward]);
    if (words) {
      model.#softmax = new Softmax(native, tensors, settings.cutoffs);
      model.#words = words;
      model.#numbers = new Map(words.map((word, number) => [word, number]));
    }
    await backward.ready;
    return model;
  }

  health() {
    const { name, whitening } = this.#settings, { numLayers, width } = this.#bilm;
    const has = { index: false, scores: Boolean(this.#softmax), whitening: Boolean(whitening) };
    return { model: name, layers: numLayers, width, ...has };
  }

  // The vectors of all layers (layers, tokens, width), or those of "cloze" or "whitened" (tokens, width).
  async embed({ texts, layers = "all" }) {
    if (!["all", "cloze", "whitened"].includes(layers))
      throw new Error(`layers: expected all, cloze or whitened, found ${layers}`);
    if (layers === "whitened") this.#whitening ??= await this.#fetchWhitening();
    const sentences = tokenizeAll(texts), runs = await this.#run(sentences);
    return {
      sentences: sentences.map((tokens, i) => {
        const rows = (name) => this.#rowsOf(this.#vectors(runs[i], tokens.length, name));
        return { tokens, vectors: layers === "all" ? runs[i].map((_, layer) => rows(layer)) : rows(layers) };
      }),
    };
  }

  // It is fetched when it is first needed: most visits do not need it.
  async #fetchWhitening() {
    const file = this.#settings.files[WHITENING_FILE];
    if (!file) throw new Error("this model has no whitening: choose other vectors");
    return new Whitening(this.#native, readTensors(await fetchBytes(WHITENING_FILE, file), WHITENING_FILE));
  }

  // The vectors (tokens, width) of a layer, of "cloze" or of "whitened".
  #vectors(run, count, name) {
    const { width } = this.#bilm;
    if (name === "cloze") return joinColumns(this.#contextStates(run.at(-1), count), count);
    if (name !== "whitened") return run[name].subarray(width, (count + 1) * width);
    const parts = this.#settings.whitening.map((layer) => this.#vectors(run, count, layer));
    return this.#whitening.apply(joinColumns(parts, count));
  }

  #rowsOf(vectors) {
    const { width } = this.#bilm;
    return Array.from({ length: vectors.length / width }, (_, t) => vectors.subarray(t * width, (t + 1) * width));
  }

  async score({ texts }) {
    const sentences = tokenizeAll(texts), runs = await this.#run(sentences);
    return {
      sentences: sentences.map((tokens, i) => {
        const targets = tokens.map((word) => this.#target(word));
        const [forward, backward] = this.#contextStates(runs[i].at(-1), tokens.length)
          .map((states) => this.#softmax.score(states, targets));
        return { tokens, forward, backward, known: targets.map((word) => this.#words[word] !== UNKNOWN) };
      }),
    };
  }

  // The most probable words at a position: by the tokens before it, those after it, and both.
  async substitutes({ tokens, position, count }) {
    const [layers] = await this.#run([tokensOf(tokens)]), width = this.#bilm.width / 2;
    const [forward, backward] = this.#contextStates(layers.at(-1), tokens.length).map((states) =>
      this.#softmax.logProbs(states.subarray(position * width, (position + 1) * width)));
    const marks = MARKS.map((mark) => this.#numbers.get(mark));
    const both = combineDirections(forward, backward, BOUNDARIES.map((mark) => this.#numbers.get(mark)));
    const best = (values) => this.#rank(values, marks, count);
    return { forward: best(forward), backward: best(backward), both: best(both) };
  }

  #rank(values, marks, count) {
    const order = Array.from(values.keys()).filter((word) => !marks.includes(word));
    order.sort((a, b) => values[b] - values[a]);
    return order.slice(0, count).map((word) => ({ word: this.#words[word], log_prob: values[word] }));
  }

  // A word that is spelled like a mark is an unknown word.
  #target(word) {
    const unknown = this.#numbers.get(UNKNOWN);
    return MARKS.includes(word) ? unknown : this.#numbers.get(word) ?? unknown;
  }

  // The top states before and after each token, (T, D) each.
  #contextStates(top, count) {
    const width = this.#bilm.width, half = width / 2;
    return [0, 1].map((direction) => {
      const states = new Float32Array(count * half);
      for (let t = 0; t < count; t++) {
        const at = (t + 2 * direction) * width + direction * half;
        states.set(top.subarray(at, at + half), t * half);
      }
      return states;
    });
  }

  // The page asks for vectors and scores of the same sentences, which run once.
  #run(sentences) {
    const key = JSON.stringify(sentences);
    if (this.#last.key !== key) this.#last = { key, runs: this.#bilm.run(sentences) };
    return this.#last.runs;
  }
}

// log P(word | before, after) by Bayes' rule, as elmore/lm/joint_prediction.py combines the directions.
function combineDirections(forward, backward, boundaries) {
  const all = Math.log(forward.length + 1);
  const both = forward.map((value, word) =>
    value + backward[word] - Math.log(Math.log1p(1 / (word + 1)) / all)); // P(word) by Zipf's law
  for (const word of boundaries) both[word] = -Infinity;
  const largest = both.reduce((a, b) => Math.max(a, b));
  const total = largest + Math.log(both.reduce((sum, value) => sum + Math.exp(value - largest), 0));
  return both.map((value) => value - total);
}

// Matrices (count, width) side by side.
function joinColumns(parts, count) {
  const width = parts[0].length / count, joined = new Float32Array(parts.length * parts[0].length);
  parts.forEach((part, p) => {
    for (let t = 0; t < count; t++)
      joined.set(part.subarray(t * width, (t + 1) * width), (t * parts.length + p) * width);
  });
  return joined;
}

function tokenizeAll(texts) {
  const sentences = texts.map(tokensOf), total = sentences.reduce((sum, tokens) => sum + tokens.length, 0);
  if (total > MAX_TOTAL)
    throw new Error(`the texts together may have ${MAX_TOTAL} tokens, these have ${total}: read them in parts`);
  return sentences;
}

function tokensOf(text) {
  const tokens = typeof text === "string" ? tokenize(text) : text;
  if (tokens.length > MAX_TOKENS)
    throw new Error(`a text may have ${MAX_TOKENS} tokens, this one has ${tokens.length}: split it`);
  return tokens;
}
