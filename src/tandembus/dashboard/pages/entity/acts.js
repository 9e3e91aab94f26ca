// What is done to many messages at once: shown while it goes on, stopped by closing.
import { html, useEffect, useRef, useState } from "../../html.js";
import { api, lines } from "../../api.js";
import { count } from "../../format.js";
import { topicOf } from "../../paths.js";
import { Dialog, Field, Notice } from "../../ui.js";

const WORDS = {
  resubmit: { title: "Resubmit", done: "resubmitted", text: (home) => `They are sent to ${home} again, and leave here once they are durable there.` },
  move: { title: "Move", done: "moved", text: () => "They are sent to another queue or topic, and leave here once they are durable there." },
  delete: { title: "Delete", done: "deleted", text: () => "They are lost. This cannot be undone." },
};

function messagesWord(number) { return number === 1 ? "1 message" : `${count(number)} messages`; }

/** numbers: sequence numbers, or null for all (of `reason`, where it is a text). */
export function ActDialog({ entity, subQueue, action, numbers, reason, total, onClose }) {
  const words = WORDS[action];
  const [target, setTarget] = useState("");
  const [progress, setProgress] = useState(null);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  const isOver = Boolean(progress?.end);
  async function go() {
    setProgress({ done: 0, failed: 0 });
    const body = { action, sequence_numbers: numbers, reason: numbers ? null : reason, to: action === "move" ? target.trim() : null };
    try {
      const response = await api.stream("POST", "messages/act", { path: entity.path, sub_queue: subQueue }, body, abort.current.signal);
      for await (const line of lines(response)) setProgress(line);
    } catch (error) {
      if (error.name === "AbortError") return;
      setProgress(null);
      throw error;
    }
  }
  const what = numbers ? messagesWord(numbers.length) : reason === null ? "all messages" : `all messages with the reason "${reason || "none"}"`;
  return html`<${Dialog} title=${`${words.title} ${what}`} submit=${progress ? null : words.title} danger=${action === "delete"} cancel=${isOver ? "Close" : progress ? "Stop" : "Cancel"}
      isReady=${action !== "move" || Boolean(target.trim())} isChanged=${!progress && target !== ""} onSubmit=${go} onClose=${onClose}>
    <p>${words.text(topicOf(entity.path) ?? entity.path)}</p>
    ${action === "move" && !progress && html`<${Field} label="Move to" value=${target} onInput=${setTarget} help="A queue or topic of this namespace." autofocus required />`}
    ${progress && html`<${Progress} progress=${progress} total=${total} words=${words} />`}
  <//>`;
}

function Progress({ progress, total, words }) {
  const seen = progress.done + progress.failed;
  const isOver = Boolean(progress.end);
  return html`<div class="stack" role="status" aria-live="polite">
    <progress aria-label="Progress" max=${Math.max(total ?? 0, seen, 1)} value=${isOver && !progress.error ? Math.max(total ?? 0, seen, 1) : seen}></progress>
    <div>${messagesWord(progress.done)} ${words.done}${progress.failed ? `, ${count(progress.failed)} not` : ""}${isOver ? "." : "…"}</div>
    ${progress.error && html`<${Notice} kind="bad">${progress.error}<//>`}
    ${progress.failures?.length > 0 && html`<${Notice} kind="warn">${progress.failures.map((one) => html`<div key=${one.sequence_number}>${`${one.sequence_number}: ${one.error}`}</div>`)}<//>`}
  </div>`;
}
