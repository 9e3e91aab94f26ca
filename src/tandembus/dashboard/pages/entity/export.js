// Messages as a file: a line of JSON for each, with its whole body.
import { html, useEffect, useRef, useState } from "../../html.js";
import { api } from "../../api.js";
import { bytes } from "../../format.js";
import { newFile } from "../../growing_file.js";
import { Dialog, Field } from "../../ui.js";

const DEFAULT_MAX = 10_000;

export function ExportDialog({ entity, asked, onClose }) {
  const [max, setMax] = useState(String(DEFAULT_MAX));
  const [got, setGot] = useState(null);
  const [isDone, setDone] = useState(false);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  async function go() {
    setGot(0);
    try {
      const response = await api.stream("GET", "messages/export", { ...asked, path: entity.path, max }, undefined, abort.current.signal);
      save(await collect(response, setGot), `${entity.path.replace(/[^\w.-]+/g, "-")}-${asked.sub_queue ?? "main"}.jsonl`);
      setDone(true);
    } catch (error) {
      if (error.name === "AbortError") return;
      setGot(null);
      throw error;
    }
  }
  return html`<${Dialog} title="Export as JSON lines" submit=${got === null ? "Export" : null} cancel=${isDone ? "Close" : got === null ? "Cancel" : "Stop"} isReady=${Number(max) > 0} onSubmit=${go} onClose=${onClose}>
    <${Field} label="At most so many messages" type="number" min="1" step="1" value=${max} onInput=${setMax} disabled=${got !== null} help="Nothing is changed or locked by it." />
    ${got !== null && html`<p role="status">${isDone ? `Saved ${bytes(got)}.` : `${bytes(got)} so far…`}</p>`}
  <//>`;
}

/** Part by part, as fast as it is kept: the page never holds all of it. */
async function collect(response, onProgress) {
  const file = await newFile();
  const reader = response.body.getReader();
  let size = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      await file.write(value);
      size += value.length;
      onProgress(size);
    }
    const whole = await file.finish();
    await checkIsWhole(whole);
    return whole;
  } catch (error) {
    await file.discard();
    throw error;
  }
}

const MAX_ERROR_BYTES = 4096;

/** Where it ended early, the last line says why. */
async function checkIsWhole(file) {
  const last = (await file.slice(-MAX_ERROR_BYTES).text()).trimEnd().split("\n").at(-1);
  let error;
  try { ({ error } = JSON.parse(last)); } catch { return; }
  if (error) throw new Error(`The export ended early: ${error}`);
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
