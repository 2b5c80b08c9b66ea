// A link to a text: all of it is in the fragment, which a browser sends to no server.

const MAX_LENGTH = 8000; // characters: longer addresses do not survive mail and chat

export function writeLink({ texts, pick, kind, weights, centre }) {
  const values = new URLSearchParams({ text: texts.join("\n"), mix: weights.join(","), centre: centre ? 1 : 0 });
  if (kind !== "mix") values.set("vectors", kind);
  if (pick) values.set("pick", `${pick.s},${pick.t}`);
  const link = `#${values}`;
  return link.length <= MAX_LENGTH ? link : null;
}

// The text and the settings of a fragment, or null if it has no text.
export function readLink(fragment) {
  const values = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!values.get("text")) return null;
  const numbers = (name) => (values.get(name) ?? "").split(",").filter(Boolean).map(Number);
  const [s, t] = numbers("pick");
  return {
    texts: values.get("text").split("\n"), pick: Number.isInteger(s) && Number.isInteger(t) ? { s, t } : null,
    weights: numbers("mix").map((value) => Math.max(0, Math.min(100, value || 0))),
    kind: values.get("vectors") ?? "mix", centre: values.get("centre") !== "0",
  };
}
