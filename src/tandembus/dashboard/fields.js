// Controls for values that are more than a text: durations, and lists of typed properties.
import { html, useState } from "./html.js";
import { duration } from "./format.js";
import { useId } from "./ui.js";

const UNITS = [["s", "seconds", 1], ["min", "minutes", 60], ["h", "hours", 3600], ["d", "days", 86400]];
const NEVER = "never";

/** The largest unit that needs no fraction. */
function unitOf(seconds) {
  const whole = UNITS.filter(([, , size]) => seconds % size === 0);
  return seconds ? whole.at(-1)?.[0] ?? "s" : "s";
}

function sizeOf(unit) { return UNITS.find(([name]) => name === unit)?.[2] ?? 1; }

/** Seconds, null for never (where `nullable`), NaN while what stands there is no number. */
export function DurationField({ label, help, value, onChange, nullable, neverWord = NEVER, min, max, disabled }) {
  const [unit, setUnit] = useState(value === null ? NEVER : unitOf(value));
  const [text, setText] = useState(value === null ? "" : String(value / sizeOf(unit)));
  const id = useId();
  const helpId = `${id}-help`;
  function change(nextText, nextUnit) {
    setText(nextText);
    setUnit(nextUnit);
    onChange(nextUnit === NEVER ? null : nextText.trim() === "" ? NaN : Number(nextText) * sizeOf(nextUnit));
  }
  const range = [min >= 1 && `at least ${duration(min)}`, max && `at most ${duration(max)}`].filter(Boolean).join(", ");
  const told = [help, range && `${range[0].toUpperCase()}${range.slice(1)}.`].filter(Boolean).join(" ");
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <div class="joined">
      <input type="number" id=${id} step="any" min="0" aria-describedby=${told ? helpId : null} value=${unit === NEVER ? "" : text}
        placeholder=${unit === NEVER ? neverWord : ""} disabled=${disabled || unit === NEVER} onInput=${(event) => change(event.target.value, unit)} />
      <select aria-label=${`Unit of ${label}`} value=${unit} disabled=${disabled} onChange=${(event) => change(text || "1", event.target.value)}>
        ${UNITS.map(([name, words]) => html`<option value=${name} selected=${name === unit}>${words}</option>`)}
        ${nullable && html`<option value=${NEVER} selected=${unit === NEVER}>${neverWord}</option>`}
      </select>
    </div>
    ${told && html`<span class="help" id=${helpId}>${told}</span>`}
  </div>`;
}

/** As the namespace names them. */
export const PROPERTY_TYPES = [
  "string", "bool", "int", "long", "double", "datetime", "timedelta", "uuid", "bytes", "byte", "short", "ubyte", "ushort", "uint", "ulong", "float", "char", "symbol", "uri", "null",
];
const EXAMPLES = { string: "value", datetime: "2030-01-31T12:00:00Z", timedelta: "seconds", bytes: "base64", uuid: "00000000-0000-0000-0000-000000000000" };

/** rows: [{ name, type, value, encoded? }], the values as texts. `encoded`: what no text can say; it goes along as it came. */
export function PropertyRows({ label, rows, onChange }) {
  const change = (index, part) => onChange(rows.map((row, at) => (at === index ? { ...row, ...part } : row)));
  return html`<fieldset><legend>${label}</legend>
    ${rows.map((row, index) => html`<div class="property" key=${index}>
      <input aria-label=${`Name of property ${index + 1}`} placeholder="name" value=${row.name} autocomplete="off" spellcheck="false" onInput=${(event) => change(index, { name: event.target.value })} />
      <select aria-label=${`Type of property ${index + 1}`} value=${row.type} onChange=${(event) => change(index, { type: event.target.value, encoded: undefined })}>
        ${typesWith(row.type).map((type) => html`<option value=${type} selected=${type === row.type}>${type}</option>`)}
      </select>
      <${PropertyValue} row=${row} label=${`Value of property ${index + 1}`} onInput=${(value) => change(index, { value })} />
      <button type="button" class="quiet" aria-label=${`Remove property ${index + 1}`} onClick=${() => onChange(rows.filter((_, at) => at !== index))}>✕</button>
    </div>`)}
    <div><button type="button" class="small" onClick=${() => onChange([...rows, { name: "", type: "string", value: "" }])}>Add a property</button></div>
  </fieldset>`;
}

function PropertyValue({ row, label, onInput }) {
  if (row.type === "bool") {
    return html`<select aria-label=${label} value=${row.value} onChange=${(event) => onInput(event.target.value)}>
      ${["true", "false"].map((word) => html`<option value=${word} selected=${word === (row.value || "true")}>${word}</option>`)}</select>`;
  }
  return html`<input aria-label=${label} placeholder=${EXAMPLES[row.type] ?? ""} value=${row.value} disabled=${Boolean(row.encoded) || row.type === "null"} autocomplete="off" spellcheck="false"
    onInput=${(event) => onInput(event.target.value)} />`;
}

function typesWith(type) { return PROPERTY_TYPES.includes(type) ? PROPERTY_TYPES : [...PROPERTY_TYPES, type]; }

/** As the rows show properties that the namespace told. */
export function toRows(properties) {
  return (properties ?? []).map(({ name, type, value, encoded }) => ({ name, type, encoded, value: asText(value) }));
}

export function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** As the namespace takes what stands in the rows, which reads every type from a text; rows without a name are nothing. */
export function fromRows(rows) {
  return rows.filter((row) => row.name !== "").map(({ name, type, value, encoded }) => {
    if (encoded) return { name, encoded };
    if (type === "bool") return { name, type, value: value !== "false" };
    return { name, type, value: type === "null" ? null : value };
  });
}
