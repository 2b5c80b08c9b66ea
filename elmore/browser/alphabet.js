// ELMo's alphabet, `ByteAlphabet` in elmore/text/characters.py: the UTF-8 bytes of a word between two
// marks, truncated to a fixed width.

export const BEGIN = "<S>", END = "</S>";
const BEGIN_SENTENCE = 256, END_SENTENCE = 257, BEGIN_WORD = 258, END_WORD = 259;
const UTF8 = new TextEncoder();

export function encodeWord(word, maxCharacters) {
  const payload = word === BEGIN ? [BEGIN_SENTENCE] : word === END ? [END_SENTENCE]
    : UTF8.encode(word.replace(/\p{Surrogate}/gu, "")).subarray(0, maxCharacters - 2);
  return [BEGIN_WORD, ...payload, END_WORD];
}
