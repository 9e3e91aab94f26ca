// A message as it is written: its body, what it is called, and where it belongs.
import { html } from "../../html.js";
import { asText, DurationField, fromRows, PropertyRows, toRows } from "../../fields.js";
import { Choice, Field, More, Notice } from "../../ui.js";

const FIRST = [["message_id", "Message id"], ["subject", "Subject"], ["content_type", "Content type"], ["session_id", "Session id"]];
const REST = [
  ["partition_key", "Partition key"], ["correlation_id", "Correlation id"], ["to", "To"], ["reply_to", "Reply to"], ["reply_to_session_id", "Reply to session id"],
];
const ENCODINGS = [{ value: "text", label: "Text" }, { value: "base64", label: "Base64" }];

export function emptyMessage() {
  return { body: "", encoding: "text", original: null, kept: {}, texts: {}, timeToLive: null, scheduledFor: "", properties: [] };
}

const OF_DEAD_LETTERS = ["DeadLetterReason", "DeadLetterErrorDescription"];

const SOURCE_OF_DEATH = "x-opt-deadletter-source";

/** What is edited, of a message as the namespace tells it. Why and where it died does not go along; `original` is what
    its body looked like, and `kept` what goes along unseen. */
export function editedMessage(message) {
  const { body } = message;
  const shown = { body: body.text ?? body.base64 ?? "", encoding: body.text !== null ? "text" : "base64" };
  return {
    ...emptyMessage(), ...shown,
    original: { ...shown, canChange: body.kind === "data" && !body.is_truncated },
    kept: { user_id: message.user_id, content_encoding: message.content_encoding, annotations: message.annotations.filter((one) => one.name !== SOURCE_OF_DEATH) },
    texts: Object.fromEntries([...FIRST, ...REST].map(([name]) => [name, asText(message[name])])),
    timeToLive: message.time_to_live_s,
    properties: toRows(message.properties.filter((one) => !OF_DEAD_LETTERS.includes(one.name))),
  };
}

/** As the namespace takes it. A body that nobody changed is left out: the original's own bytes are sent again then. */
export function messageOf(edited) {
  const texts = Object.fromEntries(Object.entries(edited.texts).filter(([, value]) => value !== ""));
  const isSame = edited.original?.body === edited.body && edited.original?.encoding === edited.encoding;
  const message = { ...edited.kept, ...texts, properties: fromRows(edited.properties) };
  if (!isSame) message.body = { [edited.encoding]: edited.body };
  if (edited.timeToLive !== null) message.time_to_live_s = edited.timeToLive;
  if (edited.scheduledFor) message.scheduled_for = `${edited.scheduledFor}${edited.scheduledFor.length === 16 ? ":00" : ""}Z`;
  return message;
}

export function isSendable(edited) { return !Number.isNaN(edited.timeToLive); }

export function MessageForm({ edited, onChange, requiresSession }) {
  const set = (part) => onChange({ ...edited, ...part });
  const text = ([name, label]) => html`<${Field} key=${name} label=${label} value=${edited.texts[name] ?? ""} required=${requiresSession && name === "session_id"}
    onInput=${(value) => set({ texts: { ...edited.texts, [name]: value } })} />`;
  return html`<div class="form">
    <div class="stack tight">
      ${edited.original && !edited.original.canChange
        ? html`<${Notice}>This body cannot be edited here. It is sent again as it is.<//>`
        : html`<${Field} label="Body" rows="8" value=${edited.body} onInput=${(body) => set({ body })} autofocus />
          <${Choice} label="Body is written as" options=${ENCODINGS} value=${edited.encoding} onChange=${(encoding) => set({ encoding })} />`}
    </div>
    <div class="columns">${FIRST.map(text)}</div>
    <${PropertyRows} label="Application properties" rows=${edited.properties} onChange=${(properties) => set({ properties })} />
    <${More} label="More">
      <div class="columns">${REST.map(text)}
        <${DurationField} label="Time to live" nullable=${true} neverWord="not set" help="Else as the entity says." value=${edited.timeToLive} onChange=${(timeToLive) => set({ timeToLive })} />
        <${Field} label="Scheduled for (UTC)" type="datetime-local" step="1" value=${edited.scheduledFor} onInput=${(scheduledFor) => set({ scheduledFor })} />
      </div>
    <//>
  </div>`;
}
