// The LSTM layers of one direction, as elmore/model/lstm/native.py runs them, here or in another worker:
// the directions do not depend on each other.

import { dense } from "./safetensors.js";
import { startWorker } from "./start_worker.js";

const GATES = 4;
const DIRECTIONS = ["forward", "backward"];

export class Stack {
  #library; #lstm; #layers;

  constructor(library, lstm, tensors, direction) {
    this.#library = library;
    this.#lstm = lstm;
    this.#layers = Array.from({ length: lstm.num_layers }, (_, layer) => {
      const part = (name) => tensors[`${DIRECTIONS[direction]}_layers.${layer}.${name}`];
      const weights = {
        input: library.pack(part("input"), GATES), recurrent: library.pack(part("recurrent"), GATES),
        bias: library.keep(dense(part("bias"))),
      };
      return lstm.projection ? { ...weights, projection: library.pack(part("projection")) } : weights;
    });
  }

  // The outputs (T, B, D) of every layer, from inputs (B, T, D) of sentences of these lengths.
  run(inputs, lengths) {
    return this.#library.work(() => this.#run(inputs, lengths));
  }

  #run(inputs, lengths) {
    const library = this.#library, lstm = this.#lstm, dim = lstm.output_dim, num = lengths.length;
    const steps = Math.max(...lengths);
    const mask = library.lend(Uint8Array.from(lengths.flatMap((length) =>
      Array.from({ length: steps }, (_, t) => Number(t < length)))));
    const zeros = library.zeros(lstm.cell_dim);
    const state = { output: library.scratch(4 * num * dim), cell: library.scratch(4 * num * lstm.cell_dim) };
    let from = { inputs: library.lend(inputs), input_row: steps * dim, input_step: dim };
    const calls = this.#layers.map((layer, number) => {
      const call = {
        ...layer, ...from, ...state, mask, mask_row: steps, mask_step: 1,
        first_output: zeros, first_cell: zeros, outputs: library.scratch(4 * steps * num * dim),
        output_row: dim,
        num_steps: steps, num_rows: num, num_cells: lstm.cell_dim, width: dim, threads: 1,
        skip: number > 0 && lstm.skip_connections ? 1 : 0, forget_bias: lstm.forget_bias,
        cell_clip: lstm.cell_clip ?? Infinity, output_clip: lstm.output_clip ?? Infinity,
      };
      from = { inputs: call.outputs, input_row: dim, input_step: num * dim };
      return call;
    });
    library.runLSTM(calls);
    return calls.map((call) => library.floatsAt(call.outputs, steps * num * dim).slice());
  }
}

// The same interface, in a worker of its own that runs stack_worker.js.
export class RemoteStack {
  #worker = startWorker(new URL("stack_worker.js", import.meta.url));

  constructor(wasm, lstm, tensors, direction) {
    const own = Object.entries(tensors).filter(([name]) => name.startsWith(DIRECTIONS[direction]));
    this.ready = this.#ask({ wasm, lstm, tensors: Object.fromEntries(own), direction });
  }

  run(inputs, lengths) { return this.#ask({ inputs, lengths }); }

  // Each question has a port for its answer: when the other direction fails, nobody waits for this one.
  #ask(question) {
    return new Promise((resolve, reject) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = ({ data }) => {
        port1.close();
        return data.error ? reject(new Error(data.error)) : resolve(data.outputs);
      };
      this.#worker.onerror = () => reject(new Error("stack_worker.js is missing: copy the folder again"));
      this.#worker.postMessage(question, [port2]);
    });
  }
}
