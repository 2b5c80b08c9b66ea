// A worker that runs one direction of the biLM: it gets its weights once, then inputs.

import { NativeLibrary } from "./native.js";
import { Stack } from "./stack.js";

let stack = null;

onmessage = async ({ data: { wasm, lstm, tensors, direction, inputs, lengths }, ports: [port] }) => {
  try {
    if (wasm) stack = new Stack(new NativeLibrary(await WebAssembly.instantiate(wasm)), lstm, tensors, direction);
    port.postMessage({ outputs: wasm ? null : stack.run(inputs, lengths) });
  } catch (error) {
    port.postMessage({ error: error.message });
  }
};
