// Prepared texts, each with the word to look at, the layer to compare and what there is to see.
// tests/browser/test_examples.py checks with the bundled model that it is so.

export const EXAMPLES = [
  {
    name: "Senses",
    texts: [
      "They walked along the bank of the river .",
      "She sat on the grassy bank of the stream .",
      "The bank lent them money to buy a house .",
      "The bank closed his account last year .",
    ],
    pick: "bank", layer: "top",
    note: "The top layer tells the senses of a word apart: the banks by the water are near each other, "
      + "and far from the banks with money.",
  },
  {
    name: "Syntax",
    texts: [
      "We watch the birds from the window .",
      "They watch television every evening .",
      "He lost his watch on the train .",
      "She bought a gold watch for her father .",
    ],
    pick: "watch", layer: "first",
    note: "The first LSTM layer knows the part of speech: the verbs are near each other, and so are the nouns.",
  },
  {
    name: "Names",
    texts: [
      "Jordan scored 30 points in the game .",
      "Jordan said that he was tired .",
      "They travelled to Jordan and Egypt .",
      "He was born in Jordan in 1960 .",
    ],
    pick: "Jordan", layer: "top",
    note: "One name, a person in two sentences and a country in two: only the context tells them apart.",
  },
  {
    name: "Misspellings",
    texts: [
      "I will recieve the letter tomorrow .",
      "I will receive the letter tomorrow .",
      "She definately left because of the rain .",
      "She definitely stayed because of the snow .",
      "They live seperate from the goverment .",
      "We keep separate what the government says .",
    ],
    pick: "recieve", layer: "word",
    note: "The model reads letters, so it has a vector for any word: a misspelt one is mostly nearest to the right one.",
  },
];
