// A new queue, topic or subscription, with every setting that it may have.
import { html, useEffect, useState } from "../../html.js";
import { api } from "../../api.js";
import { subscriptionPath } from "../../paths.js";
import { changes, defaults, isComplete, SettingsFields, useSettings } from "../../settings_form.js";
import { Check, Dialog, Field, toast, Trouble } from "../../ui.js";
import { emptyRule, RuleFields, ruleOf } from "../entity/rule_fields.js";

export function CreateEntity({ kind, topic, onCreated, onClose }) {
  const { settings, error } = useSettings();
  const [name, setName] = useState("");
  const [values, setValues] = useState(null);
  const [rule, setRule] = useState(null);
  const fields = settings?.[kind];
  useEffect(() => { if (fields) setValues(defaults(fields)); }, [fields]);
  const isChanged = Boolean(name || rule || (values && Object.keys(changes(values, defaults(fields))).length));
  async function create() {
    const path = topic ? subscriptionPath(topic, name.trim()) : name.trim();
    await api.put("entity", { kind, settings: changes(values, defaults(fields)), default_rule: rule && ruleOf(rule) }, { path });
    toast(`Created ${path}.`);
    onCreated(path);
  }
  return html`<${Dialog} title=${`Create ${kind}`} submit=${`Create ${kind}`} wide=${true} isReady=${Boolean(name.trim() && values && isComplete(values))} isChanged=${isChanged} onSubmit=${create} onClose=${onClose}>
    <div class="form">
      <${Field} label="Name" value=${name} onInput=${setName} autofocus required
        help=${topic ? `A subscription of ${topic}.` : "Letters, digits, '.', '-', '_', '~' and, between parts, '/'."} />
      <${Trouble} error=${error} />
      ${values && html`<${SettingsFields} fields=${fields} values=${values} isNew=${true} onChange=${setValues} />`}
      ${kind === "subscription" && html`<${FirstRule} rule=${rule} onChange=${setRule} />`}
    </div>
  <//>`;
}

function FirstRule({ rule, onChange }) {
  return html`<fieldset><legend>Which messages</legend>
    <${Check} label="Only some of the topic's messages" help="Else it gets all of them. Rules can be changed at any time." checked=${rule !== null} onChange=${(on) => onChange(on ? { ...emptyRule(), name: "$Default" } : null)} />
    ${rule && html`<${RuleFields} rule=${rule} onChange=${onChange} />`}
  </fieldset>`;
}
