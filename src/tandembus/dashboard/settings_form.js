// Forms made of what the namespace tells about the settings of its entities: what many people need first.
import { html, useEffect, useState } from "./html.js";
import { api } from "./api.js";
import { bytes } from "./format.js";
import { DurationField } from "./fields.js";
import { Check, Field, More, Notice } from "./ui.js";

const FRAGMENTS = 16;
const MEGABYTE = 1024 * 1024;
/** Matters only together with duplicate detection. */
const WINDOW = "duplicate_detection_history_time_window_s";
/** In this order; everything else stands below "More settings". */
const COMMON = [
  "status", "enable_partitioning", "max_size_in_megabytes", "requires_session", "requires_duplicate_detection",
  "dead_lettering_on_message_expiration", "max_delivery_count", "lock_duration_s", "default_message_time_to_live_s", WINDOW,
];
/** What is set by where an entity stands, or on other routes. */
const ELSEWHERE = ["name", "topic_name", "authorization_rules"];

/** { queue: [field], topic: [...], subscription: [...] }, or null until it is there. */
export function useSettings() {
  const [state, setState] = useState({ settings: null, error: null });
  useEffect(() => {
    api.get("settings").then((settings) => setState({ settings, error: null }), (error) => setState({ settings: null, error }));
  }, []);
  return state;
}

export function defaults(fields) {
  return Object.fromEntries(fields.map((field) => [field.name, field.default]));
}

/** Only what is different from `before`. */
export function changes(values, before) {
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => !Object.is(value, before[name])));
}

/** A duration or number that is none cannot be sent. */
export function isComplete(values) {
  return Object.values(values).every((value) => !Number.isNaN(value));
}

export function SettingsFields({ fields, values, onChange, isNew }) {
  const offered = fields.filter((field) => !ELSEWHERE.includes(field.name));
  const isFirst = ({ name }) => COMMON.includes(name) && !(isNew && name === "status") && (name !== WINDOW || values.requires_duplicate_detection);
  const first = COMMON.map((name) => offered.find((field) => field.name === name)).filter((field) => field && isFirst(field));
  const rest = offered.filter((field) => !isFirst(field));
  const show = (list) => html`<${Controls} fields=${list} values=${values} isNew=${isNew} onChange=${(name, value) => onChange({ ...values, [name]: value })} />`;
  return html`${show(first)}<${MaximumSize} values=${values} />${rest.length > 0 && html`<${More} label="More settings">${show(rest)}<//>`}`;
}

function Controls({ fields, values, isNew, onChange }) {
  const show = (field) => html`<${Control} key=${field.name} field=${field} value=${values[field.name]} disabled=${field.is_fixed && !isNew} onChange=${(value) => onChange(field.name, value)} />`;
  const switches = fields.filter((field) => field.type === "bool");
  const others = fields.filter((field) => field.type !== "bool");
  return html`${others.length > 0 && html`<div class="columns">${others.map(show)}</div>`}
    ${switches.length > 0 && html`<div class="columns">${switches.map(show)}</div>`}`;
}

function Control({ field, value, disabled, onChange }) {
  const help = [field.help, disabled && "Set when it was created."].filter(Boolean).join(" ");
  switch (field.type) {
    case "bool":
      return html`<${Check} label=${field.label} help=${help} checked=${value} disabled=${disabled} onChange=${onChange} />`;
    case "duration":
      return html`<${DurationField} label=${field.label} help=${help} value=${value} nullable=${field.nullable} min=${field.min} max=${field.max} disabled=${disabled} onChange=${onChange} />`;
    case "choice":
      return html`<${Field} label=${field.label} help=${help} value=${value} options=${field.choices} disabled=${disabled}
        onInput=${(text) => onChange(field.choices.find((choice) => String(choice) === text))} />`;
    case "int":
      return html`<${Field} label=${field.label} help=${help} type="number" value=${Number.isNaN(value) ? "" : value ?? ""} min=${field.min} max=${field.max} step="1" disabled=${disabled}
        placeholder=${field.nullable ? "not set" : ""} onInput=${(text) => onChange(text === "" ? (field.nullable ? null : NaN) : Number(text))} />`;
    default:
      return html`<${Field} label=${field.label} help=${help} value=${value ?? ""} disabled=${disabled} onInput=${(text) => onChange(text === "" && field.nullable ? null : text)} />`;
  }
}

/** P8: a partitioned entity holds 16 times its size. */
function MaximumSize({ values }) {
  const size = values.max_size_in_megabytes;
  if (size === undefined || Number.isNaN(size)) return null;
  const text = values.enable_partitioning
    ? `Maximum size: ${bytes(size * MEGABYTE)} × ${FRAGMENTS} fragments = ${bytes(size * FRAGMENTS * MEGABYTE)}`
    : `Maximum size: ${bytes(size * MEGABYTE)}`;
  return html`<${Notice}>${text}<//>`;
}
