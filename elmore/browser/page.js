// The page of `elmore serve` and of `elmore export`, which differ in backend.js: it answers requests.

import { ask, footer, opensWithExample } from "./backend.js";
import { at, make } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { readLink, writeLink } from "./link.js";
import { clearNeighbors, drawNeighbors, findNeighbors } from "./neighbors.js";
import {
  applySettings, chooseKind, chosenKind, drawSettings, isCentred, layerWeights, showSettings, sliderValues,
} from "./settings.js";
import { showSubstitutes } from "./substitutes.js";
import { cosine, KINDS, TextVectors } from "./vectors.js";

const state = {
  texts: [], sentences: [], vectors: null, kind: "mix", picked: null, neighbors: null, layers: 0, index: false,
  scores: false, asked: 0,
};
const MOST_BITS = 20; // the surprise of a full bar
const MAX_USES = 20; // of the table, which has a cell for each pair of them
const DARK = matchMedia("(prefers-color-scheme: dark)");

function showStatus(sentence, bad = false) {
  at("status").textContent = sentence;
  at("status").classList.toggle("bad", bad);
}

async function start() {
  const [text, link] = footer;
  at("footer").replaceChildren(text, make("a", { href: link }, link));
  const health = await ask("health", null, showStatus);
  const { layers, index, scores } = health;
  Object.assign(state, { layers, index, scores });
  at("model").textContent =
    `Model ${health.model}: ${health.layers} layers, vectors of ${health.width} numbers`;
  drawSettings(health, draw);
  mixOnly(EXAMPLES[0].layer);
  if (linked) applySettings(linked);
  showStatus("");
}

// Embed what is typed; `pick` chooses the first word to look at, by its place or as it is written.
async function read(pick = null) {
  if (!await ready) return;
  const texts = at("texts").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!texts.length) return showStatus("Type a sentence first.", true);
  const number = ++state.asked;
  at("read").disabled = true;
  showStatus("Embedding …");
  try {
    const vectors = new TextVectors(texts), kind = chosenKind();
    const [, scored] = await Promise.all([
      vectors.load(kind),
      state.scores ? ask("score", { texts }) : null,
    ]);
    if (number !== state.asked) return;
    Object.assign(state, { texts, vectors, kind });
    state.sentences = vectors.tokens.map((tokens, i) =>
      ({ tokens, bits: scored && surprise(scored.sentences[i]) }));
    state.picked = findPlace(pick) ?? firstRepeated();
    drawSentences();
    drawPicked();
    if (chosenKind() !== kind) showKind();
    const words = state.sentences.reduce((sum, each) => sum + each.tokens.length, 0);
    showStatus(`${words} words embedded.`);
  } catch (error) {
    if (number !== state.asked) return;
    if (state.vectors) chooseKind(state.kind); // of what is still shown
    showStatus(error.message, true);
  } finally {
    if (number === state.asked) at("read").disabled = false;
  }
}

// Bits, as the mean of what the two directions did not expect.
const surprise = (scores) =>
  scores.forward.map((left, i) => -(left + scores.backward[i]) / 2 / Math.LN2);

// A word that stands in two sentences is the most telling one to begin with: the longest of them.
function firstRepeated() {
  const places = new Map();
  state.sentences.forEach((sentence, s) =>
    sentence.tokens.forEach((token, t) => {
      const key = token.toLowerCase();
      if (!places.has(key)) places.set(key, []);
      places.get(key).push({ s, t });
    }));
  const several = [...places].filter(([, found]) => new Set(found.map((use) => use.s)).size > 1);
  several.sort((a, b) => b[1].length - a[1].length || b[0].length - a[0].length);
  const telling = several.find(([key]) => key.length > 3) || several[0] || [...places][0];
  return telling ? telling[1][0] : null;
}

function findPlace(pick) {
  const places = allPlaces();
  return typeof pick === "string" ? places.find((place) => wordAt(place) === pick)
    : pick && places.find((place) => same(place, pick));
}

const allPlaces = () =>
  state.sentences.flatMap((sentence, s) => sentence.tokens.map((_, t) => ({ s, t })));

// ---- examples and links

function drawExamples() {
  at("examples").replaceChildren(...EXAMPLES.map((example) => {
    const button = make("button", { type: "button" }, example.name);
    button.addEventListener("click", async () => {
      if (!await ready) return;
      fillText(example);
      mixOnly(example.layer);
      read(example.pick);
    });
    return button;
  }));
}

function fillText({ texts, name = null, note = "" }) {
  at("texts").value = texts.join("\n");
  at("texts").rows = Math.max(4, texts.length);
  markExample(name, note);
}

function markExample(name, note) {
  at("note").textContent = note;
  for (const button of at("examples").children)
    button.setAttribute("aria-pressed", button.textContent === name);
}

// Compare one layer: the word by itself, the first LSTM layer or the top one.
function mixOnly(layer) {
  const only = { word: 0, first: 1, top: state.layers - 1 }[layer];
  const weights = Array.from({ length: state.layers }, (_, number) => (number === only ? 100 : 0));
  applySettings({ kind: "mix", weights, centre: true });
}

function drawLink() {
  const link = writeLink({
    texts: state.texts, pick: state.picked, kind: state.kind, weights: sliderValues(),
    centre: at("centre").checked,
  });
  at("link-row").hidden = !link;
  if (link) at("link").href = link;
}

// ---- the vectors

// Compare the words by the chosen kind of vectors, when they have come.
async function showKind() {
  const kind = chosenKind(), { vectors } = state, isCurrent = () => kind === chosenKind() && vectors === state.vectors;
  showSettings();
  showStatus("Embedding …");
  try {
    await vectors.load(kind);
    if (!isCurrent()) return;
    state.kind = kind;
    draw();
    showStatus(`Words are compared by ${KINDS[kind].name}.`);
  } catch (error) {
    if (!isCurrent()) return;
    chooseKind(state.kind);
    showStatus(error.message, true);
  }
}

// How the layers of a word become the vector that is compared.
function currentMix() {
  const { kind, vectors } = state;
  return { kind, weights: layerWeights(kind), means: isCentred(kind) ? vectors.means(kind) : null };
}

// ---- the picture

function drawSentences() {
  const bits = state.sentences.some((sentence) => sentence.bits);
  at("surprise-legend").hidden = !bits;
  at("sentences").replaceChildren(...state.sentences.map((sentence, s) => {
    const chips = make("div", { className: "chips" });
    chips.setAttribute("role", "group");
    chips.setAttribute("aria-label", `Sentence ${s + 1}`);
    chips.append(...sentence.tokens.map((token, t) => {
      const chip = make("button", { type: "button", className: "chip" }, token);
      chip.dataset.s = s;
      chip.dataset.t = t;
      if (sentence.bits) {
        chip.append(make("span", { className: "surprise" }));
        chip.style.setProperty("--b", Math.max(0.02, Math.min(1, sentence.bits[t] / MOST_BITS)));
        chip.title = `surprise ${sentence.bits[t].toFixed(1)} bits`;
      }
      return chip;
    }));
    const number = make("span", { className: "number" }, String(s + 1));
    number.setAttribute("aria-hidden", "true");
    return make("div", { className: "sentence" }, number, chips);
  }));
  for (const id of ["sentences-card", "vectors-card", "uses-card"]) at(id).hidden = false;
}

const chipAt = ({ s, t }) => document.querySelector(`.chip[data-s="${s}"][data-t="${t}"]`);

function draw() {
  showSettings();
  if (!state.picked) return;
  drawLink();
  const places = allPlaces(), mix = currentMix();
  const vectors = new Map(places.map(({ s, t }) => [`${s} ${t}`, state.vectors.mix(s, t, mix)]));
  const vector = (place) => vectors.get(`${place.s} ${place.t}`);
  const near = places.map((place) => cosine(vector(state.picked), vector(place)));
  const others = near.filter((_, i) => !same(places[i], state.picked));
  const scale = scaleOf(others);
  places.forEach((place, i) => paintChip(place, near[i], scale));
  at("scale-text").textContent = others.length
    ? `cosine ${Math.min(...others).toFixed(2)} to ${Math.max(...others).toFixed(2)}` : "";
  drawUses(places, vector);
  showNeighbors();
}

const same = (a, b) => a.s === b.s && a.t === b.t;
const wordAt = ({ s, t }) => state.sentences[s].tokens[t];

// Vectors of one model share a direction, so what tells them apart is a small part of the scale.
function scaleOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  return (value) => (high > low ? Math.max(0, Math.min(1, (value - low) / (high - low))) : 0.5);
}

function paint(node, share) {
  node.style.setProperty("--s", share.toFixed(3));
  node.classList.toggle("hot", share > (DARK.matches ? 0.57 : 0.78)); // where the ink must turn
}

function paintChip(place, value, scale) {
  const chip = chipAt(place);
  const picked = same(place, state.picked);
  paint(chip, picked ? 0 : scale(value));
  chip.setAttribute("aria-pressed", picked);
  chip.tabIndex = picked ? 0 : -1;
  const bits = state.sentences[place.s].bits;
  const parts = [wordAt(place), picked ? "picked" : `similarity ${value.toFixed(2)}`];
  if (bits) parts.push(`surprise ${bits[place.t].toFixed(1)} bits`);
  chip.setAttribute("aria-label", parts.join(", "));
}

function context({ s, t }) {
  const tokens = state.sentences[s].tokens;
  const left = tokens.slice(Math.max(0, t - 3), t).join(" ");
  const right = tokens.slice(t + 1, t + 4).join(" ");
  return [t > 3 ? "… " : "", left, " ", make("b", {}, tokens[t]), " ", right,
    t + 4 < tokens.length ? " …" : ""];
}

function drawUses(places, vector) {
  const word = wordAt(state.picked).toLowerCase();
  const all = places.filter((place) => wordAt(place).toLowerCase() === word);
  const first = all.findIndex((place) => same(place, state.picked)) - MAX_USES / 2;
  const begin = Math.max(0, Math.min(first, all.length - MAX_USES));
  const uses = all.slice(begin, begin + MAX_USES);
  at("uses-title").textContent = `Uses of “${wordAt(state.picked)}”`;
  at("uses-about").textContent = uses.length > 1
    ? `Cosine of each use with each other, by ${KINDS[state.kind].name}; the colours run from 0 to 1.`
      + (uses.length < all.length ? ` These are ${uses.length} of ${all.length} uses.` : "")
    : "This word stands here once. Type another sentence with it to compare its uses.";
  const pairs = uses.map((a) => uses.map((b) => cosine(vector(a), vector(b))));
  const head = make("tr", {}, make("td", { className: "self" }),
    ...uses.map((_, i) => make("th", { scope: "col" }, String(i + 1))));
  const rows = uses.map((use, i) => {
    const title = make("th", { scope: "row" }, `${i + 1}. `, ...context(use));
    const row = make("tr", { className: same(use, state.picked) ? "picked" : "" }, title);
    row.append(...pairs[i].map((value, j) => {
      if (i === j) return make("td", { className: "self" }, "·");
      const cell = make("td", {}, value.toFixed(2));
      paint(cell, Math.max(0, Math.min(1, value))); // a fixed scale: two pictures can be compared
      return cell;
    }));
    return row;
  });
  at("uses").replaceChildren(
    ...(uses.length > 1 ? [make("thead", {}, head), make("tbody", {}, ...rows)] : []));
}

// ---- the picked word

function showPickedSubstitutes() {
  const { picked, sentences } = state;
  if (state.scores)
    showSubstitutes(sentences[picked.s].tokens, picked.t, () => state.picked === picked);
}

async function findPickedNeighbors() {
  const { picked, sentences } = state;
  state.neighbors = null;
  if (!state.index) return;
  at("neighbors-card").hidden = false;
  clearNeighbors();
  try {
    const found = await findNeighbors(sentences[picked.s].tokens, picked.t);
    if (state.picked !== picked) return;
    state.neighbors = found.uses.length ? found : null;
    if (state.neighbors) showNeighbors();
    else clearNeighbors("The index has none.");
  } catch (error) {
    if (state.picked === picked) clearNeighbors(error.message);
  }
}

// Draw the nearest uses, when their vectors of the chosen kind have come.
async function showNeighbors() {
  const { neighbors, picked } = state;
  if (!neighbors) return;
  try {
    while (!neighbors.vectors.has(state.kind)) await neighbors.vectors.load(state.kind);
    if (neighbors !== state.neighbors) return;
    const mix = currentMix();
    drawNeighbors(neighbors, state.vectors.mix(picked.s, picked.t, mix), mix);
  } catch (error) {
    if (neighbors === state.neighbors) clearNeighbors(error.message);
  }
}

// ---- input

function drawPicked() {
  if (state.picked) findPickedNeighbors();
  draw();
  if (state.picked) showPickedSubstitutes();
}

function pick(chip) {
  state.picked = { s: Number(chip.dataset.s), t: Number(chip.dataset.t) };
  drawPicked();
  showStatus(`“${wordAt(state.picked)}” in sentence ${state.picked.s + 1} is picked.`);
}

function move(chip, key) {
  const chips = [...document.querySelectorAll(".chip")];
  const s = Number(chip.dataset.s), t = Number(chip.dataset.t);
  const line = (number) => chips.filter((each) => Number(each.dataset.s) === number);
  const beside = (number) => line(number)[Math.min(t, line(number).length - 1)];
  const to = {
    ArrowRight: () => chips[chips.indexOf(chip) + 1],
    ArrowLeft: () => chips[chips.indexOf(chip) - 1],
    ArrowDown: () => beside(s + 1),
    ArrowUp: () => beside(s - 1),
    Home: () => line(s)[0],
    End: () => line(s).at(-1),
  }[key];
  const next = to && to();
  if (next) {
    chips.forEach((each) => { each.tabIndex = each === next ? 0 : -1; });
    next.focus();
  }
  return Boolean(to);
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); read(); });
at("texts").addEventListener("input", () => markExample(null, ""));
at("centre").addEventListener("input", draw);
at("kinds").addEventListener("change", showKind);
addEventListener("hashchange", async () => {
  const link = readLink(location.hash);
  if (!link || !await ready) return;
  fillText(link);
  applySettings(link);
  read(link.pick);
});
at("texts").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("sentences").addEventListener("click", (event) => {
  const chip = event.target.closest(".chip");
  if (chip) pick(chip);
});
at("sentences").addEventListener("keydown", (event) => {
  const chip = event.target.closest(".chip");
  if (chip && move(chip, event.key)) event.preventDefault();
});

DARK.addEventListener("change", draw);
drawExamples();
const linked = readLink(location.hash);
fillText(linked ?? EXAMPLES[0]);
const ready = start().then(() => true, (error) => showStatus(error.message, true));
if (linked || opensWithExample) read(linked ? linked.pick : EXAMPLES[0].pick);
