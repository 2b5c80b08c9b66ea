// The Penn Treebank tokenizer of elmore/text/tokenizers.py, which explains the alternatives. They have
// the same names and the same order here, in the regular expressions of JavaScript: repeats are not
// possessive (what follows them cannot match a part of them), \X is spelled out, and so are cases.

const LIGATURES = { fi: "ﬁ", st: "ﬅﬆ" };
const SPACE = String.raw`\p{White_Space}\x1C-\x1F`;
const INVISIBLE = String.raw`\u00AD\u200C-\u200F\u2060`;
const KANA = String.raw`\p{Script=Hiragana}\p{Script=Katakana}\u30FC\uFF70`;
const UNSPACED = String.raw`[\p{Script=Han}${KANA}\p{Script=Thai}]`; // scripts without spaces
const LETTER = String.raw`[\p{L}--${UNSPACED}]`;
const ALNUM = String.raw`[[\p{L}\p{N}]--${UNSPACED}]`;
const RUN = String.raw`${ALNUM}[[\p{L}\p{N}\p{M}${INVISIBLE}]--${UNSPACED}]*`;
const END = String.raw`(?![\p{L}\p{N}])`;
const CLITIC = `['’](?:${anyCase("s d m ll re ve")})${END}`;
const DOTTED = String.raw`\.(?!\.|-\p{Ll}|[\p{Ll}\p{N}]|\p{Lu}(?!\p{Ll}))`;
const LABEL = String.raw`[\p{L}\p{N}\-]{1,63}`;
const PLAIN = String.raw`[^${SPACE}<>"“”«»\(\)]`;
const BRACKETED = String.raw`\(${PLAIN}*\)`;
const ADDRESS = String.raw`(?:${PLAIN}|${BRACKETED})*(?:(?!\p{P})${PLAIN}|${BRACKETED})\/?`;

const WORD = String.raw`${RUN}(?:(?:`
  + String.raw`\.(?=\p{Ll})`
  + String.raw`|(?<=[\p{N}\p{Lu}])\.(?=\p{N}|\p{Lu}(?!\p{Ll}))`
  + String.raw`|(?<=\p{N})[,:\/](?=\p{N})`
  + String.raw`|[\-‐‑]`
  + String.raw`|\.-(?=\p{Ll})`
  + String.raw`|(?!${CLITIC})['’](?=\p{L})`
  + String.raw`|[\&·](?=\p{L})`
  + String.raw`|_+`
  + String.raw`)${RUN})*`;

const ABBREVIATIONS = `
  Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof Rev Fr Hon Pres Gov Sen Sens Rep Reps Gen Col Lt Maj Capt
  Cmdr Cpl Sgt Adm Supt Jr Sr Sra Srta Esq St Ste Mt Ft Ave Blvd Rd Str Inc Corp Co Cos Ltd Bros
  Assn Dept Univ Jan Feb Apr Aug Sep Sept Oct Nov Dec Ala Ariz Calif Colo Conn Fla Ga Kan Ky Md
  Mich Minn Neb Nev Okla Pa Tenn Va Vt Wis Wyo Ph\\.D vs etc cf viz al approx ca eds bzw usw`;
const BEFORE_NUMBERS = "no nos nr p pp vol vols fig figs art sec ch op mar jun jul est";

// An emoji with what belongs to it: a grapheme cluster (Unicode, UAX 29)
const EXTEND = String.raw`[\p{Grapheme_Extend}\p{Emoji_Modifier}]`;
const EMOJI = String.raw`(?:\p{Regional_Indicator}{1,2}`
  + String.raw`|\p{Extended_Pictographic}(?:${EXTEND}*\u200D\p{Extended_Pictographic})*)`
  + String.raw`(?:${EXTEND}|[\u200D\p{Mc}])*`;

const ALTERNATIVES = [
  // Contractions without an apostrophe
  `(?:${anyCase("can")})(?=(?:${anyCase("not")})${END})`,
  `(?:${anyCase("gon wan")})(?=(?:${anyCase("na")})${END})`,
  `(?:${anyCase("got")})(?=(?:${anyCase("ta")})${END})`,
  `(?:${anyCase("lem gim")})(?=(?:${anyCase("me")})${END})`,

  // Most words and marks, where the next character excludes the alternatives below
  String.raw`[A-Za-zÀ-ÖØ-öø-ɏΑ-ωА-я]+(?=[\p{White_Space},;!?\)\]"”]|['’]s?\p{White_Space})`,
  String.raw`[0-9]+(?=[,;.\)]?\p{White_Space})`,
  String.raw`[,;\(\)"“”][\p{M}\p{Cf}]*`,
  String.raw`\.(?=\p{White_Space})`,

  // Emoji with their modifiers and joined partners, flags, keycaps
  EMOJI,
  String.raw`[0-9#*]\uFE0F?\u20E3`,

  // Abbreviations keep their dot; so do initials, but not the pronoun
  String.raw`(?=${ALNUM})(?=\p{L}{1,6}\.)(?:`
    + String.raw`(?:${ABBREVIATIONS.trim().split(/\s+/).join("|")})${DOTTED}`
    + String.raw`|(?:${anyCase(BEFORE_NUMBERS)})\.(?=\p{White_Space}?\p{N})`
    + String.raw`|\p{L}(?:\.\p{L}(?=\.))+${DOTTED}`
    + String.raw`|(?!I\.(?!\p{White_Space}?\p{Lu}\.))\p{Lu}${DOTTED})`,
  String.raw`[A-Za-z]+(?=\.\p{White_Space})`,

  // Addresses, without the punctuation of the sentence around them
  String.raw`(?:(?:${anyCase("http https ftp")}):\/\/|(?:${anyCase("www")})\.)${ADDRESS}`,
  String.raw`(?=${ALNUM})(?:${LABEL}\.){1,8}\p{L}{2,24}\/${ADDRESS}`,
  String.raw`(?=${ALNUM})[\p{L}\p{N}._%+\-]{1,64}@${LABEL}(?:\.${LABEL}){1,8}`,

  // Contractions: the word before n't, and n't
  String.raw`${LETTER}+(?=[nN]['’][tT]${END})`,
  String.raw`[nN]['’][tT]${END}`,

  String.raw`(?=${ALNUM})\p{Lu}(?:\+\+|#)${END}`, // C++, C#
  WORD,

  String.raw`(?<![^\p{White_Space}\(\[])[\-−+]?\.?(?=\p{N})${WORD}`, // -5, .5
  String.raw`(?<=[\p{L}\p{N}\p{M}.\)\]"”])${CLITIC}`,
  String.raw`(?<![\p{L}\p{N}_])(?:`
    + String.raw`['’](?:[tT](?=(?:${anyCase("is was")})${END})|(?:${anyCase("em")})${END}`
    + String.raw`|[nN]['’]|\p{Nd}{2}[sSſ]?${END})` // '90s
    + String.raw`|@[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*`
    + String.raw`|#(?=\p{N}*[\p{L}_])[\p{L}\p{N}\p{M}_]+)`,

  // Scripts without spaces: a Chinese character, a run of kana or Thai
  String.raw`\p{Script=Han}\p{M}*`,
  String.raw`[${KANA}][${KANA}\p{M}]*`,
  String.raw`\p{Script=Thai}[\p{Script=Thai}\p{M}${INVISIBLE}]*`,

  // Punctuation: runs of dots, dashes and typewriter quotes; everything else one by one
  String.raw`\.{2,}|…+|[\-‒–—―]{2,}|\x60\x60|''`,
  String.raw`\P{White_Space}[\p{M}\p{Cf}]*`,
];

// Words in any case: "s d" is [sSſ]|[dD]. Ligatures are a case of their letters.
function anyCase(words) {
  const letter = (c) => `[${c}${c.toUpperCase()}${c === "s" ? "ſ" : ""}]`;
  const spell = (letters) => [...letters].map(letter).join("");
  const ligature = (letters) => `(?:[${LIGATURES[letters]}]|${spell(letters)})`;
  return words.split(" ").map((word) => word.split(/(fi|st)/).map((part) =>
    (LIGATURES[part] ? ligature(part) : spell(part))).join("")).join("|");
}

let penn = null; // made on first use: a browser may be too old for it

// The words of a text.
export function tokenize(text) {
  penn ??= new RegExp(`(?=[^${SPACE}])(?:${ALTERNATIVES.join("|")})`, "gv");
  return text.match(penn) ?? [];
}
