// The page asks the server that it comes from: backend.js of `elmore serve`.

import { at } from "./dom.js";

export const opensWithExample = false; // a server may ask for a token first
export const footer = ["Nothing leaves this server. The same in other programs: ", "openapi.json"];

// Ask a route of the HTTP API.
export async function ask(route, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  if (at("token").value) headers.Authorization = `Bearer ${at("token").value}`;
  let answer;
  try {
    answer = await fetch(route, body ? { method: "POST", headers, body: JSON.stringify(body) } : {});
  } catch {
    throw new Error("The server does not answer.");
  }
  const found = await answer.json().catch(() => { // as of a proxy before the server
    throw new Error(`The server answered with status ${answer.status} and no JSON.`);
  });
  if (answer.status === 401) at("token-row").hidden = false;
  if (!answer.ok) throw new Error(found.detail);
  return found;
}
