// A rule as it is edited: what kind of filter, its parts, and an action; errors are told while somebody types.
import { html, useEffect, useState } from "../../html.js";
import { api } from "../../api.js";
import { fromRows, PropertyRows, toRows } from "../../fields.js";
import { useSettled } from "../../live.js";
import { Check, Field, More, useId } from "../../ui.js";

const KINDS = [
  { value: "sql", label: "SQL expression" }, { value: "correlation", label: "Correlation (equal values)" },
  { value: "true", label: "All messages" }, { value: "false", label: "No message" },
];
const CORRELATION = [
  ["correlation_id", "Correlation id"], ["message_id", "Message id"], ["session_id", "Session id"], ["subject", "Subject"], ["content_type", "Content type"],
  ["to", "To"], ["reply_to", "Reply to"], ["reply_to_session_id", "Reply to session id"],
];

export function emptyRule() {
  return { name: "", kind: "sql", expression: "", parameters: [], correlation: {}, properties: [], hasAction: false, action: "", actionParameters: [] };
}

/** What is edited, of a rule as the namespace tells it. */
export function editedRule({ name, filter, action }) {
  return {
    ...emptyRule(), name, kind: filter.kind, expression: filter.expression ?? "", parameters: toRows(filter.parameters), properties: toRows(filter.properties),
    correlation: Object.fromEntries(CORRELATION.map(([field]) => [field, filter[field] ?? ""])),
    hasAction: Boolean(action), action: action?.expression ?? "", actionParameters: toRows(action?.parameters),
  };
}

export function filterOf(rule) {
  if (rule.kind === "sql") return { kind: "sql", expression: rule.expression, parameters: fromRows(rule.parameters) };
  if (rule.kind !== "correlation") return { kind: rule.kind };
  const given = Object.entries(rule.correlation).filter(([, value]) => value !== "");
  return { kind: "correlation", ...Object.fromEntries(given), properties: fromRows(rule.properties) };
}

export function actionOf(rule) {
  return rule.hasAction ? { expression: rule.action, parameters: fromRows(rule.actionParameters) } : null;
}

export function ruleOf(rule) {
  return { name: rule.name.trim(), filter: filterOf(rule), action: actionOf(rule) };
}

/** What the namespace's own compiler says about the rule, and about `message` with it, once typing rests.
    `isCurrent` is false until it has said so about what stands there now. */
export function useCheck(rule, message) {
  const asked = JSON.stringify({ name: rule.name.trim() || undefined, filter: filterOf(rule), action: actionOf(rule), message: message ?? undefined });
  const settled = useSettled(asked, 300);
  const [answer, setAnswer] = useState({ asked: null, result: null, error: null });
  useEffect(() => {
    let isWanted = true;
    const body = JSON.parse(settled);
    if (body.filter.kind === "sql" && !body.filter.expression.trim()) {
      setAnswer({ asked: settled, result: null, error: null });
      return undefined;
    }
    if (!body.action?.expression.trim()) delete body.action;
    const keep = (part) => isWanted && setAnswer({ asked: settled, result: null, error: null, ...part });
    api.post("rules/check", body).then((result) => keep({ result }), (error) => keep({ error }));
    return () => { isWanted = false; };
  }, [settled]);
  return { ...answer, isCurrent: answer.asked === asked };
}

export function RuleFields({ rule, onChange, check }) {
  const own = useCheck(rule, null);
  const { result } = check ?? own;
  const set = (part) => onChange({ ...rule, ...part });
  return html`
    <${Field} label="Filter" value=${rule.kind} options=${KINDS} onInput=${(kind) => set({ kind })} />
    ${rule.kind === "sql" && html`<${Expression} label="Expression" value=${rule.expression} error=${result?.filter_error} rows="4"
        help="For example: amount > 100 AND region IN ('eu', 'us'). sys.Label and the like are the message's own fields." onInput=${(expression) => set({ expression })} />
      <${More} label=${`Parameters (${rule.parameters.length})`}><${PropertyRows} label="Parameters of the expression" rows=${rule.parameters} onChange=${(parameters) => set({ parameters })} /><//>`}
    ${rule.kind === "correlation" && html`<${Correlation} rule=${rule} set=${set} error=${result?.filter_error} />`}
    <${Check} label="Change the messages with an action" checked=${rule.hasAction} onChange=${(hasAction) => set({ hasAction })} />
    ${rule.hasAction && html`<${Expression} label="Action" value=${rule.action} error=${rule.action.trim() ? result?.action_error : null} rows="3"
        help="For example: SET priority = 'high'; REMOVE draft" onInput=${(action) => set({ action })} />
      <${More} label=${`Parameters of the action (${rule.actionParameters.length})`}><${PropertyRows} label="Parameters of the action" rows=${rule.actionParameters} onChange=${(actionParameters) => set({ actionParameters })} /><//>`}`;
}

function Correlation({ rule, set, error }) {
  return html`<div class="columns dense">${CORRELATION.map(([name, label]) => html`
      <${Field} key=${name} label=${label} value=${rule.correlation[name] ?? ""} onInput=${(value) => set({ correlation: { ...rule.correlation, [name]: value } })} />`)}</div>
    <${PropertyRows} label="Application properties" rows=${rule.properties} onChange=${(properties) => set({ properties })} />
    ${error && html`<${Mistake} error=${error} text="" />`}`;
}

function Expression({ label, value, error, help, rows, onInput }) {
  const id = useId();
  return html`<div class="stack tight">
    <${Field} label=${label} help=${help} rows=${rows} value=${value} onInput=${onInput} aria-invalid=${error ? "true" : null} aria-describedby=${error ? id : null} />
    ${error && html`<${Mistake} id=${id} error=${error} text=${value} />`}
  </div>`;
}

const AROUND = 32;

/** The mistake in words, and the place of it in the text; places are counted in characters, not in JavaScript's halves of them. */
function Mistake({ id, error, text }) {
  const letters = [...text];
  const at = typeof error.position === "number" ? Math.min(error.position, letters.length) : null;
  const start = Math.max(0, at - AROUND);
  const part = (from, to) => letters.slice(from, to).join("");
  return html`<div class="mistake" id=${id} role="status">
    <div>${error.text}</div>
    ${at !== null && text && html`<pre aria-label="The place of the mistake">${start > 0 ? "…" : ""}${part(start, at)}<mark>${letters[at] ?? " "}</mark>${part(at + 1, at + AROUND)}${at + AROUND < letters.length ? "…" : ""}</pre>`}
  </div>`;
}
