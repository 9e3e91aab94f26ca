// Requests to the namespace. The cookie counts only together with the header, which no other site can send.
const HEADERS = { "X-Tandembus": "1" };

export class Refusal extends Error {
  constructor(status, text, trackingId) {
    super(text);
    this.status = status;
    this.trackingId = trackingId;
  }
}

let whenSignedOut = () => {};
export function onSignedOut(callback) { whenSignedOut = callback; }

/** An empty text that means something. */
export const EMPTY = Symbol("empty");

export function query(parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [name, value === EMPTY ? "" : value]);
  return given.length ? "?" + new URLSearchParams(given) : "";
}

async function send(method, url, body, signal) {
  const options = { method, headers: { ...HEADERS }, signal, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The namespace cannot be reached.");
  }
  if (response.ok) return response;
  const refusal = await readRefusal(response);
  if (refusal.status === 401 && !url.endsWith("/$api/session")) whenSignedOut();
  throw refusal;
}

async function readRefusal(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return new Refusal(response.status, error.text, error.tracking_id);
  } catch {
    // The routes for SDKs answer in XML: the detail ends with codes for machines.
    const detail = new DOMParser().parseFromString(text, "text/xml").querySelector("Detail")?.textContent;
    return new Refusal(response.status, (detail ?? `HTTP ${response.status}`).split(" SubCode=")[0]);
  }
}

async function json(response) {
  return response.status === 204 || response.headers.get("Content-Length") === "0" ? null : response.json();
}

/** `name`: a route below /$api/. */
export const api = {
  get: async (name, parameters, signal) => json(await send("GET", `/$api/${name}${query(parameters)}`, undefined, signal)),
  post: async (name, body, parameters) => json(await send("POST", `/$api/${name}${query(parameters)}`, body)),
  put: async (name, body, parameters) => json(await send("PUT", `/$api/${name}${query(parameters)}`, body)),
  patch: async (name, body, parameters) => json(await send("PATCH", `/$api/${name}${query(parameters)}`, body)),
  remove: async (name, parameters) => json(await send("DELETE", `/$api/${name}${query(parameters)}`)),
  /** One of the other routes, such as "/$faults"; `entityPath` is made part of an address by `address`. */
  raw: async (method, url, body, signal) => json(await send(method, url, body, signal)),
  stream: async (method, name, parameters, body, signal) => send(method, `/$api/${name}${query(parameters)}`, body, signal),
};

export function address(entityPath) {
  return "/" + entityPath.split("/").map(encodeURIComponent).join("/");
}

/** The lines of JSON of an answer that comes little by little. */
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ?? "";
    const parts = rest.split("\n");
    rest = parts.pop();
    for (const part of parts) if (part.trim()) yield JSON.parse(part);
    if (done) {
      if (rest.trim()) yield JSON.parse(rest);
      return;
    }
  }
}
