// One message with all that it holds.
import { html, useState } from "../../html.js";
import { api } from "../../api.js";
import { asText } from "../../fields.js";
import { bytes, count, duration, time } from "../../format.js";
import { usePoll } from "../../live.js";
import { Badge, Dialog, Facts, Table, Trouble } from "../../ui.js";
import { Body } from "./body.js";
import { ResendMessage } from "./send.js";

const TEXTS = [
  ["message_id", "Message id"], ["session_id", "Session id"], ["partition_key", "Partition key"], ["subject", "Subject"], ["content_type", "Content type"],
  ["content_encoding", "Content encoding"], ["correlation_id", "Correlation id"], ["to", "To"], ["reply_to", "Reply to"], ["reply_to_session_id", "Reply to session id"], ["user_id", "User id"],
];
const DEATH = [["dead_letter_reason", "Dead-letter reason"], ["dead_letter_description", "Description"], ["dead_letter_source", "Died in"]];
const COLUMNS = [
  { head: "Name", cell: (one) => html`<span class="wrap mono">${one.name}</span>` },
  { head: "Type", cell: (one) => one.type },
  { head: "Value", cell: (one) => html`<span class="wrap mono">${one.value === null ? html`<span class="muted">none</span>` : asText(one.value)}</span>` },
];

export function MessageDetail({ entity, subQueue, number, may, onAct, onChanged, onClose }) {
  const { data: message, error } = usePoll((signal) => api.get("message", { path: entity.path, sub_queue: subQueue, sequence_number: number }, signal), [entity.path, subQueue, number], 0);
  const [resending, setResending] = useState(false);
  const actions = message && html`
    ${may.send && html`<button type="button" onClick=${() => setResending(true)}>Resend…</button>`}
    ${may.resubmit && html`<button type="button" onClick=${() => onAct("resubmit", [number])}>Resubmit…</button>`}
    ${may.remove && html`<button type="button" class="danger" onClick=${() => onAct("delete", [number])}>Delete…</button>`}`;
  return html`<${Dialog} title=${`Message ${number}`} wide=${true} cancel="Close" actions=${actions} onClose=${onClose}>
    <${Trouble} error=${error} />
    ${message && html`<${Shown} message=${message} />`}
    ${!message && !error && html`<p class="muted">Reading…</p>`}
  <//>
  ${resending && html`<${ResendMessage} entity=${entity} subQueue=${subQueue} message=${message} onClose=${() => setResending(false)} onSent=${() => { setResending(false); onChanged(); }} />`}`;
}

function Shown({ message }) {
  const given = (list) => list.filter(([name]) => message[name] !== null && message[name] !== undefined && message[name] !== "").map(([name, label]) => [label, html`<span class="mono">${asText(message[name])}</span>`]);
  const times = [
    ["State", html`<${Badge} word=${message.state} />`], ["Enqueued", time(message.enqueued_at)],
    message.scheduled_for && ["Scheduled for", time(message.scheduled_for)],
    ["Expires", message.expires_at ? time(message.expires_at) : "never"],
    message.time_to_live_s !== null && ["Time to live", duration(message.time_to_live_s)],
    ["Delivery count", count(message.delivery_count)], ["Size", bytes(message.size_bytes)], ["Fragment", count(message.fragment)],
  ].filter(Boolean);
  return html`
    <${Part} title="Body"><${Body} body=${message.body} /><//>
    <div class="grid">
      <${Part} title="Message"><${Facts} rows=${[...given(DEATH), ...given(TEXTS)]} /><//>
      <${Part} title="Broker"><${Facts} rows=${times} /><//>
    </div>
    <${Part} title="Application properties"><${Table} label="Application properties" columns=${COLUMNS} rows=${message.properties} rowKey=${(one) => one.name} empty="It has none." /><//>
    <${Part} title="Annotations"><${Table} label="Annotations" columns=${COLUMNS} rows=${message.annotations} rowKey=${(one) => one.name} empty="It has none." /><//>`;
}

function Part({ title, children }) {
  return html`<div class="part"><h3>${title}</h3>${children}</div>`;
}
