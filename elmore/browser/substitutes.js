// The card with the most probable words at the place of the picked word.

import { ask } from "./backend.js";
import { at, make } from "./dom.js";

const COUNT = 8; // words of each list

// Show the words at a position of a sentence, unless another is picked (`isPicked`) before they come.
export async function showSubstitutes(tokens, position, isPicked) {
  at("substitutes-card").hidden = false;
  at("substitutes").replaceChildren();
  try {
    const found = await ask("substitutes", { tokens, position, count: COUNT });
    if (!isPicked()) return;
    const lists = [["by what stands before", found.forward], ["by both sides", found.both],
      ["by what stands after", found.backward]];
    at("substitutes").replaceChildren(...lists.map(([title, words]) => make("section", {},
      make("h3", {}, title), make("ol", {}, ...words.map(({ word, log_prob: value }) => make("li", {},
        make("span", { className: "value" }, `${(100 * Math.exp(value)).toFixed(1)} %`), word))))));
  } catch (error) {
    if (isPicked()) at("substitutes").replaceChildren(error.message);
  }
}
