// The card with the nearest uses in the corpus of the server's index.

import { ask } from "./backend.js";
import { at, make } from "./dom.js";
import { cosine, KINDS, TextVectors } from "./vectors.js";

const CANDIDATES = 16, SHOWN = 8; // uses to order by the chosen vectors, and to show

// Ask the index for uses near a word: {word, uses, vectors}.
export async function findNeighbors(tokens, position) {
  const text = tokens.map((token) => token.replace(/[[\]\\]/g, "\\$&"))
    .map((token, t) => (t === position ? `[${token}]` : token)).join(" ");
  const { word, neighbors: uses } = await ask("neighbors", { text, k: CANDIDATES });
  return { word, uses, vectors: new TextVectors(uses.map((use) => use.tokens)) };
}

// The index has found the uses by its own vectors; the chosen ones order them.
export function drawNeighbors({ word, uses, vectors }, vector, mix) {
  const near = uses.map((use, i) => ({ use, similarity: cosine(vector, vectors.mix(i, use.position, mix)) }));
  near.sort((a, b) => b.similarity - a.similarity);
  at("neighbors-about").textContent = `The index has found ${uses.length} uses near this “${word}” by its own `
    + `vectors. They are ordered by the cosine of ${KINDS[mix.kind].name}`
    + (uses.length > SHOWN ? `; these are the first ${SHOWN}.` : ".");
  at("neighbors").replaceChildren(...near.slice(0, SHOWN).map(({ use, similarity }) => make("li", {},
    make("span", { className: "value" }, similarity.toFixed(2)),
    make("span", { className: "words" }, use.tokens.slice(0, use.position).join(" "), " ",
      make("b", {}, use.tokens[use.position]), " ", use.tokens.slice(use.position + 1).join(" ")))));
}

export function clearNeighbors(sentence = "") {
  at("neighbors-about").textContent = sentence;
  at("neighbors").replaceChildren();
}
