// The page asks a model in this tab: backend.js of an exported folder.

import { startWorker } from "./start_worker.js";

export const opensWithExample = true;
export const footer = ["Nothing leaves this machine: the model runs in this tab. The model's card: ", "README.md"];

const waiting = new Map();
let worker = null, number = 0, report = null, failure = null;

// Ask the worker what a server would be asked; `onProgress` is called while the model is loaded.
export function ask(route, body, onProgress) {
  report = onProgress ?? report;
  worker ??= startModel();
  if (failure) return Promise.reject(failure);
  return new Promise((resolve, reject) => {
    waiting.set(++number, { resolve, reject });
    worker.postMessage({ number, route, body });
  });
}

function startModel() {
  const result = startWorker(new URL("worker.js", import.meta.url));
  result.onmessage = ({ data }) => {
    if (data.progress) return report?.(data.progress);
    const { resolve, reject } = waiting.get(data.number);
    waiting.delete(data.number);
    return data.error ? reject(new Error(data.error)) : resolve(data.answer);
  };
  result.onerror = (event) => {
    event.preventDefault();
    failure = new Error("a script of the page is missing or damaged: copy the exported folder again");
    for (const { reject } of waiting.values()) reject(failure);
    waiting.clear();
  };
  return result;
}
