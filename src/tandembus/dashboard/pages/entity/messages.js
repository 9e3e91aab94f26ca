// Looking at messages without taking them, and what is done with them.
import { html, useEffect, useState } from "../../html.js";
import { api, EMPTY } from "../../api.js";
import { bytes, count, plainTime } from "../../format.js";
import { usePoll, useSettled } from "../../live.js";
import { adjust, go } from "../../router.js";
import { may, useSession } from "../../session.js";
import { Awaited, Choice, Empty, Field, Notice, Panel, Table, Trouble } from "../../ui.js";
import { known } from "../entities/states.js";
import { ActDialog } from "./acts.js";
import { ExportDialog } from "./export.js";
import { MessageDetail } from "./message_detail.js";

const TOP = 50;
const NO_REASON = "(none)";
const VIEWS = [
  { value: "active", label: "Active", subQueue: "main", state: "active", figure: (entity) => entity.active - entity.deferred, kinds: ["queue", "subscription"] },
  { value: "scheduled", label: "Scheduled", subQueue: "main", state: "scheduled", figure: (entity) => entity.scheduled, kinds: ["queue", "topic", "subscription"] },
  { value: "deferred", label: "Deferred", subQueue: "main", state: "deferred", figure: (entity) => entity.deferred, kinds: ["queue", "subscription"] },
  { value: "dead-letter", label: "Dead letters", subQueue: "dead-letter", state: "all", figure: (entity) => entity.dead_letter, kinds: ["queue", "subscription"] },
  { value: "transfer", label: "Transfer dead letters", subQueue: "transfer-dead-letter", state: "all", figure: (entity) => entity.transfer_dead_letter, kinds: ["queue", "topic", "subscription"] },
];

/** Null while the messages cannot be counted. */
function figureOf(view, entity) { return entity.active === null ? null : view.figure(entity); }

export function Messages({ entity, parameters, refresh }) {
  const views = VIEWS.filter((one) => one.kinds.includes(entity.kind));
  const view = views.find((one) => one.value === parameters.view) ?? views[0];
  const isDead = view.subQueue !== "main";
  const { session, from, reason, message: opened } = parameters;
  const asked = { sub_queue: view.subQueue, state: view.state, session, reason: isDead && reason === NO_REASON ? EMPTY : isDead ? reason : undefined };
  const { data, error, isStale, isLoading, refresh: again } = usePoll(
    (signal) => api.get("messages", { ...asked, path: entity.path, from, top: TOP }, signal), [entity.path, view.value, session, from, reason], 0);
  const [selected, setSelected] = useState([]);
  const [acting, setActing] = useState(null);
  useEffect(() => setSelected([]), [view.value, session, from, reason]);
  const changed = () => { again(); refresh(); };
  const act = (action, numbers) => setActing({ action, numbers });
  const rights = rightsOn(entity, useSession(), isDead);
  const pick = (parts) => go("entity", { path: entity.path, tab: "messages", view: view.value, session, reason, ...parts });
  return html`<${Panel} title="Messages" bare=${true} actions=${html`<button class="small" onClick=${changed}>Refresh</button>`}>
    <div class="inside stack">
      <${Choice} label="Which messages" value=${view.value} onChange=${(value) => go("entity", { path: entity.path, tab: "messages", view: value })}
        options=${views.map((one) => ({ value: one.value, label: figureOf(one, entity) === null ? one.label : `${one.label} (${known(entity, figureOf(one, entity))})` }))} />
      <div class="bar">
        ${isDead && html`<${ReasonField} entity=${entity} subQueue=${view.subQueue} reason=${reason} version=${data} />`}
        <${SessionField} entity=${entity} session=${session} isListed=${entity.requires_session && !isDead} />
        <${FromField} from=${from} />
      </div>
      <${Acts} rights=${rights} isDead=${isDead} selected=${selected} hasReason=${isDead && reason !== undefined} onClear=${() => setSelected([])} onAct=${act} hasMessages=${Boolean(data?.messages.length)} />
      <${Trouble} error=${error} />
      ${data?.is_partial && html`<${Notice} kind="warn">Some fragments cannot be reached now: their messages are not shown.<//>`}
    </div>
    ${data && html`<${Awaited} isLoading=${isLoading} isStale=${isStale}><${Table} cards=${isDead} label=${view.label} rows=${data.messages} rowKey=${(one) => one.sequence_number} columns=${columnsOf(view, isDead, rights, data.messages, selected, setSelected)}
      empty=${data.next ? `None among the ${count(data.scanned)} looked at.` : "There are none."} /><//>`}
    ${!data && isLoading && html`<${Empty}>Reading…<//>`}
    ${(from || data?.next) && html`<nav class="pager" aria-label="Parts of the list">
      <button class="small" disabled=${!from} onClick=${() => pick({ from: "" })}>From the start</button>
      <button class="small" disabled=${!data?.next || isStale} onClick=${() => pick({ from: data.next })}>Next</button></nav>`}
    ${opened && !acting && html`<${MessageDetail} key=${opened} entity=${entity} subQueue=${view.subQueue} number=${opened} may=${rights} onAct=${act} onChanged=${() => { adjust({ message: "" }); changed(); }} onClose=${() => adjust({ message: "" })} />`}
    ${acting?.action === "export" && html`<${ExportDialog} entity=${entity} asked=${asked} onClose=${() => setActing(null)} />`}
    ${acting && acting.action !== "export" && html`<${ActDialog} entity=${entity} subQueue=${view.subQueue} action=${acting.action} numbers=${acting.numbers} total=${acting.numbers?.length ?? figureOf(view, entity)}
      reason=${isDead && reason !== undefined ? (reason === NO_REASON ? "" : reason) : null} onClose=${() => { setActing(null); setSelected([]); if (opened) adjust({ message: "" }); changed(); }} />`}
  <//>`;
}

/** Messages of a subscription are sent to its topic, for which the same keys are good. */
function rightsOn(entity, session, isDead) {
  const canTake = may(entity, "Listen");
  const canSend = may(entity, "Send");
  return { send: canTake && canSend, resubmit: isDead && canTake && canSend, move: canTake && may(session, "Send") && (isDead || !entity.requires_session), remove: canTake };
}

function Acts({ rights, isDead, selected, hasReason, hasMessages, onClear, onAct }) {
  const some = selected.length > 0;
  const numbers = some ? selected : null;
  const which = some ? `selected (${selected.length})` : hasReason ? "all with this reason" : "all";
  const canAct = some || (isDead && hasMessages);
  return html`<div class="row" role="group" aria-label="Actions">
    ${rights.resubmit && html`<button class="small" disabled=${!canAct} onClick=${() => onAct("resubmit", numbers)}>${`Resubmit ${which}`}</button>`}
    ${rights.move && (isDead || some) && html`<button class="small" disabled=${!canAct} onClick=${() => onAct("move", numbers)}>${`Move ${which}`}</button>`}
    ${rights.remove && (isDead || some) && html`<button class="small danger" disabled=${!canAct} onClick=${() => onAct("delete", numbers)}>${`Delete ${which}`}</button>`}
    <button class="small" disabled=${!hasMessages} onClick=${() => onAct("export", null)}>Export</button>
    ${some && html`<button class="small quiet" onClick=${onClear}>Clear the selection</button>`}
  </div>`;
}

function ReasonField({ entity, subQueue, reason, version }) {
  const { data } = usePoll((signal) => api.get("messages/reasons", { path: entity.path, sub_queue: subQueue }, signal), [entity.path, subQueue, version], 0);
  const found = (data?.reasons ?? []).map((one) => ({ value: one.reason || NO_REASON, label: `${one.reason || "no reason"} (${count(one.count)}${data.is_complete ? "" : " or more"})` }));
  const isKnown = !reason || found.some((one) => one.value === reason);
  const options = [{ value: "", label: "Any reason" }, ...(isKnown ? [] : [{ value: reason, label: reason }]), ...found];
  return html`<${Field} label="Reason" value=${reason ?? ""} options=${options} onInput=${(value) => adjust({ reason: value, from: "" })} />`;
}

function SessionField({ entity, session, isListed }) {
  const [text, setText] = useState(session ?? "");
  const settled = useSettled(text, 400);
  useEffect(() => { if (settled !== (session ?? "")) adjust({ session: settled, from: "" }); }, [settled]);
  const { data } = usePoll((signal) => (isListed ? api.get("sessions", { path: entity.path, top: 100 }, signal) : Promise.resolve(null)), [entity.path, isListed], 0);
  return html`<${Field} label="Session" value=${text} onInput=${setText} placeholder="any" list="session-ids" />
    <datalist id="session-ids">${(data?.sessions ?? []).map((id) => html`<option value=${id}></option>`)}</datalist>`;
}

function FromField({ from }) {
  const [text, setText] = useState(from ?? "");
  const settled = useSettled(text, 400);
  const isNumber = /^\d{0,19}$/.test(text.trim());
  useEffect(() => setText(from ?? ""), [from]);
  useEffect(() => { if (settled.trim() !== (from ?? "") && settled === text && isNumber) adjust({ from: settled.trim() }); }, [settled]);
  return html`<${Field} label="From sequence number" value=${text} onInput=${setText} placeholder="the first" inputmode="numeric" aria-invalid=${isNumber ? null : "true"} help=${isNumber ? null : "A whole number, such as 42."} />`;
}

function Below({ message }) {
  const parts = [message.subject, message.session_id && `session ${message.session_id}`].filter(Boolean);
  return parts.length > 0 && html`<span class="cut small">${parts.join(" · ")}</span>`;
}

function columnsOf(view, isDead, rights, messages, selected, setSelected) {
  const numbers = messages.map((one) => one.sequence_number);
  const isAll = numbers.every((number) => selected.includes(number));
  const toggle = (number, on) => setSelected((before) => (on ? [...before, number] : before.filter((one) => one !== number)));
  const select = rights.remove && {
    control: true,
    head: html`<input type="checkbox" aria-label="Select all shown" checked=${isAll} onChange=${(event) => setSelected(event.target.checked ? numbers : [])} />`,
    cell: (one) => html`<input type="checkbox" aria-label=${`Select message ${one.sequence_number}`} checked=${selected.includes(one.sequence_number)} onChange=${(event) => toggle(one.sequence_number, event.target.checked)} />`,
  };
  return [
    select,
    { head: "Number", cell: (one) => html`<button class="link number" aria-label=${`Open message ${one.sequence_number}`} onClick=${() => adjust({ message: one.sequence_number })}>${one.sequence_number}</button>` },
    isDead && { head: "Reason", cell: (one) => html`<span class="cut">${one.dead_letter_reason ?? "–"}</span><span class="cut small" title=${one.dead_letter_description}>${one.dead_letter_description}</span>` },
    view.value === "scheduled" ? { head: "Scheduled for (UTC)", cell: (one) => html`<span class="number">${plainTime(one.scheduled_for)}</span>` } : { head: "Enqueued (UTC)", wide: true, cell: (one) => html`<span class="number">${plainTime(one.enqueued_at)}</span>` },
    { head: "Message id", cell: (one) => html`<span class="cut short">${one.message_id ?? "–"}</span><${Below} message=${one} />` },
    { head: "Deliveries", number: true, wide: true, cell: (one) => count(one.delivery_count) },
    { head: "Size", number: true, wide: true, cell: (one) => bytes(one.size_bytes) },
    !isDead && { head: "Body", wide: true, cell: (one) => html`<span class="cut mono preview">${one.body.text?.slice(0, 120) ?? `${one.body.kind}, ${bytes(one.body.size_bytes)}`}</span>` },
  ].filter(Boolean);
}
