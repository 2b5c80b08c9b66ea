// The worker of the page: it loads the model once and answers requests, one after another.

import { loadModel } from "./model.js";

const model = loadModel((progress) => postMessage({ progress }));
model.catch(() => {}); // every answer says why
let previous = Promise.resolve();

onmessage = ({ data: { number, route, body } }) => {
  previous = previous.then(async () => {
    try {
      postMessage({ number, answer: await (await model)[route](body) });
    } catch (error) {
      postMessage({ number, error: error.message });
    }
  });
};
