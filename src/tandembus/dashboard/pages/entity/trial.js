// "Would this message match?": asked of the broker's own compiler and evaluator.
import { html, useEffect, useMemo, useState } from "../../html.js";
import { api } from "../../api.js";
import { asText } from "../../fields.js";
import { usePoll, useSettled } from "../../live.js";
import { topicOf } from "../../paths.js";
import { Badge, Choice, Field, Notice, Trouble } from "../../ui.js";

const SOURCES = [{ value: "paste", label: "Written here" }, { value: "peek", label: "From a subscription" }];
const EXAMPLE = JSON.stringify({ subject: "order.created", properties: { region: "eu", amount: 120 }, body: { text: "" } }, null, 2);
const TOP = 50;

export function Trial({ entity, check, message, hasAction, onMessage }) {
  const [source, setSource] = useState("paste");
  return html`<section class="trial form" aria-label="Would this message match?">
    <h3>Would this message match?</h3>
    <${Choice} label="The message is" options=${SOURCES} value=${source} onChange=${(next) => { setSource(next); onMessage(null); }} />
    ${source === "paste" ? html`<${Pasted} onMessage=${onMessage} />` : html`<${Peeked} entity=${entity} onMessage=${onMessage} />`}
    <${Verdict} check=${check} message=${message} hasAction=${hasAction} />
  </section>`;
}

/** A message as JSON; its properties may stand there as a plain object, whose types are guessed as a client would. */
export function readMessage(text) {
  const found = JSON.parse(text);
  if (typeof found !== "object" || found === null || Array.isArray(found)) throw new SyntaxError("A message is a JSON object.");
  const { properties = {}, body, ...rest } = found;
  const typed = Array.isArray(properties) ? properties : Object.entries(properties).map(([name, value]) => ({ name, ...typedValue(value) }));
  return { ...rest, body: typeof body === "string" ? { text: body } : body ?? { text: "" }, properties: typed };
}

function typedValue(value) {
  if (typeof value === "boolean") return { type: "bool", value };
  if (typeof value === "number") return { type: Number.isInteger(value) ? "long" : "double", value };
  return value === null ? { type: "null", value } : { type: "string", value: asText(value) };
}

function Pasted({ onMessage }) {
  const [text, setText] = useState(EXAMPLE);
  const settled = useSettled(text, 300);
  const read = useMemo(() => {
    try { return { message: readMessage(settled) }; } catch (error) { return { error }; }
  }, [settled]);
  useEffect(() => onMessage(read.message ?? null), [read]);
  return html`<${Field} label="Message as JSON" rows="10" value=${text} onInput=${setText} help="As the message browser exports it; properties may also be a plain object." />
    <${Trouble} error=${read.error} />`;
}

function Peeked({ entity, onMessage }) {
  const topic = topicOf(entity.path);
  const { data: found } = usePoll((signal) => api.get("entities", { topic, top: 200 }, signal), [topic], 0);
  const [path, setPath] = useState(entity.path);
  const { data, error } = usePoll((signal) => api.get("messages", { path, state: "all", top: TOP }, signal), [path], 0);
  const [number, setNumber] = useState("");
  useEffect(() => setNumber(data?.messages[0]?.sequence_number ?? ""), [data]);
  useEffect(() => onMessage(data?.messages.find((one) => one.sequence_number === number) ?? null), [number, data]);
  const paths = found ? found.entities.map((one) => one.path) : [path];
  return html`<${Field} label="Subscription" value=${path} options=${paths} onInput=${setPath} />
    ${data?.messages.length > 0 && html`<${Field} label="Message" value=${number} onInput=${setNumber}
      options=${data.messages.map((one) => ({ value: one.sequence_number, label: [one.sequence_number, one.subject, one.message_id].filter(Boolean).join(" · ") }))} />`}
    ${data?.messages.length === 0 && html`<${Notice}>There is no message to try.<//>`}
    <${Trouble} error=${error} />`;
}

function Verdict({ check, message, hasAction }) {
  const { result, error } = check;
  if (error) return html`<${Trouble} error=${error} />`;
  if (!result || !message) return null;
  if (result.filter_error) return html`<${Notice} kind="warn">The filter cannot be tried before its mistake is corrected.<//>`;
  return html`<div class="stack" role="status" aria-live="polite">
    ${result.evaluation_error && html`<${Notice} kind="bad">${result.evaluation_error}<//>`}
    ${result.matches !== null && html`<div><${Badge} word=${result.matches ? "It matches" : "It does not match"} tone=${result.matches ? "good" : "bad"} /></div>`}
    ${hasAction && result.matches && result.after && html`<${After} message=${message} after=${result.after} />`}
  </div>`;
}

const FIELDS = ["message_id", "session_id", "partition_key", "subject", "content_type", "correlation_id", "to", "reply_to", "reply_to_session_id", "time_to_live_s"];

/** What the action changes: each value before and after. A message without an id gets one with every send. */
export function differences(before, after) {
  const rows = FIELDS.filter((name) => (name !== "message_id" || before[name]) && asText(before[name]) !== asText(after[name])).map((name) => [name, before[name], after[name]]);
  const old = new Map((before.properties ?? []).map((one) => [one.name, one]));
  const now = new Map(after.properties.map((one) => [one.name, one]));
  for (const name of new Set([...old.keys(), ...now.keys()])) {
    if (asText(old.get(name)?.value) !== asText(now.get(name)?.value) || old.has(name) !== now.has(name)) rows.push([name, old.get(name)?.value, now.get(name)?.value]);
  }
  return rows;
}

function After({ message, after }) {
  const rows = differences(message, after);
  const shown = (value) => (value === undefined || value === null ? html`<span class="muted">none</span>` : html`<span class="mono wrap">${asText(value)}</span>`);
  return html`<h3>After the action</h3>
    ${rows.length === 0 ? html`<p class="muted">Nothing is changed.</p>` : html`<div class="scroll" role="region" aria-label="After the action" tabindex="0"><table>
      <thead><tr><th scope="col">Property</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
      <tbody>${rows.map(([name, before, now]) => html`<tr key=${name}><td class="mono wrap">${name}</td><td>${shown(before)}</td><td>${shown(now)}</td></tr>`)}</tbody>
    </table></div>`}`;
}
