// Which of a topic's messages a subscription gets, and how they are changed on the way.
import { html, useState } from "../../html.js";
import { api } from "../../api.js";
import { asText } from "../../fields.js";
import { usePoll } from "../../live.js";
import { Confirm, Notice, Panel, Table, toast, Trouble } from "../../ui.js";
import { RuleEditor } from "./rule_editor.js";

const EVERY_MS = 5000;

export function filterText(filter) {
  if (filter.kind === "sql") return filter.expression;
  if (filter.kind === "true") return "all messages";
  if (filter.kind === "false") return "no message";
  const fields = Object.entries(filter).filter(([name, value]) => name !== "kind" && name !== "properties" && value);
  const parts = [...fields.map(([name, value]) => `${name} = ${value}`), ...filter.properties.map((one) => `${one.name} = ${asText(one.value)}`)];
  return parts.join(", ");
}

export function Rules({ entity }) {
  const { data, error, refresh } = usePoll((signal) => api.get("rules", { path: entity.path }, signal), [entity.path], EVERY_MS);
  const [editing, setEditing] = useState(null);
  const [deleting, setDeleting] = useState(null);
  async function remove() {
    await api.remove("rules", { path: entity.path, name: deleting.name });
    toast(`Deleted the rule ${deleting.name}.`);
    setDeleting(null);
    refresh();
  }
  const columns = [
    { head: "Rule", cell: (rule) => html`<button class="link" aria-label=${`Edit rule ${rule.name}`} onClick=${() => setEditing(rule)}>${rule.name}</button>` },
    { head: "Filter", cell: (rule) => html`<code class="wrap">${filterText(rule.filter)}</code> <span class="muted small">${rule.filter.kind}</span>` },
    { head: "Action", cell: (rule) => (rule.action ? html`<code class="wrap">${rule.action.expression}</code>` : html`<span class="muted">none</span>`) },
    { head: html`<span class="visually-hidden">Delete</span>`, number: true, cell: (rule) => html`<button class="small danger" aria-label=${`Delete rule ${rule.name}`} onClick=${() => setDeleting(rule)}>Delete</button>` },
  ];
  const all = data?.rules.length > 1 && data.rules.find((rule) => rule.filter.kind === "true");
  return html`<${Panel} title="Rules" bare=${true} actions=${html`<button class="primary" onClick=${() => setEditing({})}>Create rule</button>`}>
    <${Trouble} error=${error} />
    ${all && html`<div class="inside"><${Notice} kind="warn">The rule ${all.name} takes all messages: none is left out, whatever the other rules say.<//></div>`}
    ${data && html`<${Table} cards=${true} label="List of rules" columns=${columns} rows=${data.rules} rowKey=${(rule) => rule.name} empty="Without a rule it gets no message." />`}
    ${editing && html`<${RuleEditor} entity=${entity} rule=${editing.name ? editing : null} onClose=${() => setEditing(null)} onSaved=${() => { setEditing(null); refresh(); }} />`}
    ${deleting && html`<${Confirm} title=${`Delete the rule ${deleting.name}?`} text="Messages that only this rule takes no longer come." submit="Delete rule" onConfirm=${remove} onClose=${() => setDeleting(null)} />`}
  <//>`;
}
