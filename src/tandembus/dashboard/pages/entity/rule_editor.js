// A rule beside a message that it is tried on: errors and the verdict come while somebody types.
import { html, useState } from "../../html.js";
import { api } from "../../api.js";
import { toast, Dialog, Field } from "../../ui.js";
import { useChanged } from "../../unsaved.js";
import { editedRule, emptyRule, RuleFields, ruleOf, useCheck } from "./rule_fields.js";
import { Trial } from "./trial.js";

export function RuleEditor({ entity, rule, onSaved, onClose }) {
  const [edited, setEdited] = useState(rule ? editedRule(rule) : emptyRule());
  const [message, setMessage] = useState(null);
  const check = useCheck(edited, message);
  const isWritten = edited.name.trim() && (edited.kind !== "sql" || edited.expression.trim()) && (!edited.hasAction || edited.action.trim());
  const isWrong = check.isCurrent && (check.result?.filter_error || check.result?.action_error);
  async function save() {
    const { name, filter, action } = ruleOf(edited);
    await api.put("rules", { filter, action }, { path: entity.path, name });
    toast(`Saved the rule ${name}.`);
    onSaved();
  }
  return html`<${Dialog} title=${rule ? `Rule ${rule.name}` : "Create rule"} submit=${rule ? "Save rule" : "Create rule"} wide=${true} isReady=${Boolean(isWritten && !isWrong)} isChanged=${useChanged(ruleOf(edited))} onSubmit=${save} onClose=${onClose}>
    <div class="grid">
      <div class="form">
        ${!rule && html`<${Field} label="Name" value=${edited.name} onInput=${(name) => setEdited({ ...edited, name })} autofocus required />`}
        <${RuleFields} rule=${edited} onChange=${setEdited} check=${check} />
      </div>
      <${Trial} entity=${entity} check=${check} onMessage=${setMessage} hasAction=${edited.hasAction} message=${message} />
    </div>
  <//>`;
}
