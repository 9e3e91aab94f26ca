// The subscriptions of a topic.
import { html, useState } from "../../html.js";
import { api } from "../../api.js";
import { usePoll } from "../../live.js";
import { nameOf } from "../../paths.js";
import { adjust, link } from "../../router.js";
import { may } from "../../session.js";
import { Awaited, Badge, Pager, Panel, Table, Trouble } from "../../ui.js";
import { CreateEntity } from "../entities/create.js";
import { StateBadges, known } from "../entities/states.js";

const TOP = 50;
const COLUMNS = [
  { head: "Subscription", cell: (one) => html`<span class="wrap"><a href=${link("entity", { path: one.path })}>${nameOf(one.path)}</a> ${one.requires_session && html`<${Badge} word="sessions" plain=${true} />`}</span>` },
  { head: "State", cell: (one) => html`<${StateBadges} entity=${one} />` },
  { head: "Active", number: true, cell: (one) => known(one, one.active) },
  { head: "Dead letters", number: true, cell: (one) => known(one, one.dead_letter) },
  { head: "Forwards to", wide: true, cell: (one) => one.forward_to && html`<a class="wrap" href=${link("entity", { path: one.forward_to })}>${one.forward_to}</a>` },
];

export function Subscriptions({ entity, parameters, refresh }) {
  const skip = Number(parameters.skip) || 0;
  const [making, setMaking] = useState(false);
  const { data, error, isLoading, refresh: again } = usePoll((signal) => api.get("entities", { topic: entity.path, skip, top: TOP }, signal), [entity.path, skip], 2000);
  const actions = may(entity, "Manage") && html`<button class="primary" onClick=${() => setMaking(true)}>Create subscription</button>`;
  return html`<${Panel} title="Subscriptions" bare=${true} actions=${actions}>
    <${Trouble} error=${error} />
    ${data && html`<${Awaited} isLoading=${isLoading}><${Table} cards=${true} label="List of subscriptions" columns=${COLUMNS} rows=${data.entities} rowKey=${(one) => one.path} empty="Nobody subscribes: what is sent here goes nowhere." /><//>
      <${Pager} skip=${skip} top=${TOP} count=${data.count} onMove=${(next) => adjust({ skip: next || "" })} />`}
    ${making && html`<${CreateEntity} kind="subscription" topic=${entity.path} onClose=${() => setMaking(false)} onCreated=${() => { setMaking(false); again(); refresh(); }} />`}
  <//>`;
}
