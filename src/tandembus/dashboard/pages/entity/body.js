// The body of a message: as it reads, as JSON, or byte by byte; never more of it at once than a page can bear.
import { html, useMemo, useState } from "../../html.js";
import { bytes } from "../../format.js";
import { Choice, Notice } from "../../ui.js";

const TEXT_LIMIT = 64 * 1024;
const JSON_LIMIT = 256 * 1024;
const HEX_LIMIT = 4 * 1024;
const HEX_ROW = 16;
/** Every level is indented: without a bound, a small body of nothing but brackets would fill the memory. */
const JSON_DEPTH = 100;

export function bytesOf(body) {
  if (body.text !== null) return new TextEncoder().encode(body.text);
  if (body.base64 === null) return new Uint8Array();
  return Uint8Array.from(atob(body.base64), (letter) => letter.charCodeAt(0));
}

/** Put in lines by its tokens alone: numbers of 64 bits and names that stand twice stay as they are. Null if it is no JSON,
    or nested too deeply to be read. */
export function prettyJson(text) {
  try { JSON.parse(text); } catch { return null; }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  if (depthOf(tokens) > JSON_DEPTH) return null;
  let depth = 0;
  const line = (change) => { depth += change; return `\n${"  ".repeat(depth)}`; };
  return tokens.map((token, index) => {
    const isEmpty = (token === "{" && tokens[index + 1] === "}") || (token === "[" && tokens[index + 1] === "]");
    const wasEmpty = (token === "}" && tokens[index - 1] === "{") || (token === "]" && tokens[index - 1] === "[");
    if (isEmpty || wasEmpty) return token;
    if (token === "{" || token === "[") return token + line(1);
    if (token === "}" || token === "]") return line(-1) + token;
    if (token === ",") return token + line(0);
    return token === ":" ? ": " : token;
  }).join("");
}

function depthOf(tokens) {
  let depth = 0;
  let deepest = 0;
  for (const token of tokens) {
    if (token === "{" || token === "[") deepest = Math.max(deepest, depth += 1);
    else if (token === "}" || token === "]") depth -= 1;
  }
  return deepest;
}

export function hexLines(data, limit) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, limit); at += HEX_ROW) {
    const part = [...data.subarray(at, Math.min(at + HEX_ROW, limit))];
    const pairs = part.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(HEX_ROW * 3 - 1);
    const letters = part.map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${pairs}  ${letters}`);
  }
  return rows.join("\n");
}

export function Body({ body }) {
  const data = useMemo(() => bytesOf(body), [body]);
  const pretty = useMemo(() => (body.text && body.text.length <= JSON_LIMIT ? prettyJson(body.text) : null), [body]);
  const [view, setView] = useState(pretty ? "json" : body.text !== null ? "text" : "hex");
  const [more, setMore] = useState(1);
  const views = [body.text !== null && { value: "text", label: "Text" }, pretty && { value: "json", label: "JSON" }, { value: "hex", label: "Hex" }].filter(Boolean);
  const limit = (view === "hex" ? HEX_LIMIT : TEXT_LIMIT) * more;
  const whole = view === "json" ? pretty : body.text;
  // Drawn once: the page around it is drawn every second, and a body may have thousands of marks.
  const shown = useMemo(() => html`<pre class=${`body ${view}`} tabindex="0" role="region" aria-label="Body">${view === "hex" ? hexLines(data, limit) : whole.slice(0, limit)}</pre>`, [data, whole, view, limit]);
  const isCut = (view === "hex" ? data.length : whole.length) > limit;
  if (!body.size_bytes) return html`<p class="muted">The body is empty.</p>`;
  return html`<div class="stack">
    <div class="row between"><${Choice} label="Show the body as" options=${views} value=${view} onChange=${(next) => { setView(next); setMore(1); }} />
      <span class="muted">${bytes(body.size_bytes)}${body.kind === "data" ? "" : `, AMQP ${body.kind}`}</span></div>
    ${body.is_truncated && html`<${Notice} kind="warn">${`Only the first ${bytes(data.length)} of ${bytes(body.size_bytes)} are shown. An export holds all of it.`}<//>`}
    ${shown}
    ${isCut && html`<div><button type="button" class="small" onClick=${() => setMore(more * 4)}>Show more</button></div>`}
  </div>`;
}
