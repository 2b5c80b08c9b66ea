// Fetches the files that `elmore export` wrote beside this page, and checks that they are whole.

const FORMAT = 2; // of model.json, as site.py writes it

// model.json: the configuration of the network, and the sizes and digests of the other files.
export async function fetchSettings() {
  const settings = await (await fetchFile("model.json")).json().catch(() => {
    throw new Error("model.json is damaged: copy the exported folder again");
  });
  if (settings.format !== FORMAT)
    throw new Error(`model.json has format ${settings.format}, this page reads ${FORMAT}: export the folder again`);
  return settings;
}

// The bytes of a file of `settings.files`; `report` is called with the number received so far.
export async function fetchBytes(name, { bytes, sha256 }, report = () => {}) {
  const response = await fetchFile(name), reader = response.body.getReader();
  const next = () => reader.read().catch(() => { throw notFetched(name); }); // the connection broke
  const whole = new Uint8Array(bytes);
  let count = 0;
  for (let part = await next(); !part.done; part = await next()) {
    if (count + part.value.length <= bytes) whole.set(part.value, count);
    count += part.value.length;
    report(count);
  }
  if (count !== bytes)
    throw new Error(`${name} has ${count} bytes instead of ${bytes}: copy the exported folder again`);
  // Browsers offer digests to pages from https and from this machine alone.
  if (globalThis.crypto?.subtle && sha256 !== await hexDigest(whole))
    throw new Error(`${name} is damaged: copy the exported folder again`);
  return whole.buffer;
}

async function fetchFile(name) {
  let response;
  try {
    response = await fetch(new URL(name, import.meta.url));
  } catch {
    throw notFetched(name);
  }
  if (!response.ok) throw new Error(`${name} is missing: copy the exported folder again`);
  return response;
}

const notFetched = (name) =>
  new Error(`${name} could not be fetched: check the connection and reload the page`);

async function hexDigest(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
