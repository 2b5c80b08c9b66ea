// What a visitor sets: the kind of vectors, the weights of the layers, and whether their mean is subtracted.

import { at, make } from "./dom.js";

const radios = () => [...document.querySelectorAll("#kinds input")];
const sliders = () => [...document.querySelectorAll("#sliders input")];

export const chosenKind = () => radios().find((radio) => radio.checked).value;
export const sliderValues = () => sliders().map((input) => Number(input.value));

// Draw what a model has to set; `mixChanged` is called when a slider moves.
export function drawSettings({ layers, whitening }, mixChanged) {
  at("kind-whitened").parentElement.hidden = !whitening;
  const names = (layer) =>
    layer === 0 ? "the word by itself" : layer === layers - 1 ? "the most context" : "some context";
  at("sliders").replaceChildren(...Array.from({ length: layers }, (_, layer) => {
    const id = `layer-${layer}`;
    const input = make("input", { id, type: "range", min: 0, max: 100, value: 0 });
    input.addEventListener("input", mixChanged);
    const label = make("label", { htmlFor: id }, `Layer ${layer} `, make("small", {}, names(layer)));
    return make("div", { className: "slider" }, label, input, make("output", { htmlFor: id }));
  }));
}

// A kind that the model does not have is a mix; weights of another number of layers are ignored.
export function applySettings({ kind, weights, centre }) {
  chooseKind(kind);
  at("centre").checked = centre;
  if (weights.length === sliders().length)
    sliders().forEach((input, layer) => { input.value = weights[layer]; });
}

export function chooseKind(kind) {
  const fitting = radios().find((radio) => radio.value === kind && !radio.parentElement.hidden);
  (fitting ?? at("kind-mix")).checked = true;
  showSettings();
}

// Show the settings of the chosen kind, and the weights as percentages.
export function showSettings() {
  const kind = chosenKind(), weights = layerWeights("mix");
  at("sliders").hidden = kind !== "mix";
  at("centre-row").hidden = kind === "whitened"; // a whitening has subtracted a mean of its own
  document.querySelectorAll("#sliders output").forEach((output, layer) => {
    output.textContent = `${Math.round(100 * weights[layer])} %`;
  });
}

// The weights of the layers of a kind of vectors.
export function layerWeights(kind) {
  if (kind !== "mix") return [1];
  const weights = sliderValues(), total = weights.reduce((sum, each) => sum + each, 0);
  return weights.map((each) => (total ? each / total : 1 / weights.length));
}

// Whether the mean of all words is subtracted from vectors of this kind.
export const isCentred = (kind) => kind !== "whitened" && at("centre").checked;
