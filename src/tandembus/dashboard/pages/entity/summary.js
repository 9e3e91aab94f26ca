// How deep, how fast, and how its fragments are.
import { html } from "../../html.js";
import { Chart } from "../../chart.js";
import { bytes, count, duration, rate, short, time } from "../../format.js";
import { link } from "../../router.js";
import { may } from "../../session.js";
import { Facts, Figure, Panel } from "../../ui.js";
import { known } from "../entities/states.js";
import { FragmentMap } from "./fragments.js";

export function Summary({ entity, samples }) {
  const isCounted = may(entity, "Listen") || may(entity, "Manage");
  // What a subscription gets is sent to its topic, and counted there.
  const isSentTo = entity.kind !== "subscription";
  const hasMessages = entity.kind !== "topic" && isCounted;
  const share = entity.max_size_bytes ? `of ${bytes(entity.max_size_bytes)}` : null;
  return html`
    <${Panel} title="Now" bare=${true}><div class="figures">
      ${isSentTo && html`<${Figure} label="In" value=${rate(samples.rate("sent"))} note=${entity.counters && `${count(entity.counters.sent)} in all`} />`}
      <${Figure} label="Out" value=${rate(samples.rate("received"))} note=${entity.counters && `${count(entity.counters.received)} in all`} />
      ${hasMessages && html`<${Figure} label="Active" value=${known(entity, entity.active === null ? null : entity.active - entity.deferred, short)} note=${entity.deferred > 0 && `${known(entity, entity.deferred)} deferred`} />
        <${Figure} label="Dead letters" value=${known(entity, entity.dead_letter, short)} />`}
      ${isCounted && html`<${Figure} label="Scheduled" value=${known(entity, entity.scheduled, short)} />`}
      ${hasMessages && html`<${Figure} label="Transfer dead letters" value=${known(entity, entity.transfer_dead_letter, short)} />`}
      ${entity.kind === "topic" && html`<${Figure} label="Subscriptions" value=${short(entity.subscriptions)} />`}
      ${isCounted && html`<${Figure} label="Size" value=${known(entity, entity.size_bytes, bytes)} note=${share} />`}
      ${entity.kind !== "topic" && html`<${Figure} label="Receivers" value=${short(entity.receivers)} />`}
    </div><//>
    <div class="grid">
      <${Panel} title="Messages per second"><${Chart} label=${`Messages per second of ${entity.path}`} format=${(value) => rate(value)}
        series=${[isSentTo && { label: "in", values: samples.series("sent", true) }, { label: "out", values: samples.series("received", true) }].filter(Boolean)} /><//>
      ${isCounted && html`<${Panel} title="Depth"><${Chart} label=${`Messages in ${entity.path}`} series=${depth(entity, samples)} /><//>`}
    </div>
    <${FragmentMap} entity=${entity} />
    <${Panel} title="Facts"><${Facts} rows=${facts(entity)} /><//>`;
}

function depth(entity, samples) {
  const scheduled = { label: "scheduled", values: samples.series("scheduled") };
  if (entity.kind === "topic") return [scheduled];
  return [{ label: "active", values: samples.series("active") }, { label: "dead letters", values: samples.series("dead_letter") }, scheduled];
}

/** Settings are told only to who may manage the entity. */
function facts(entity) {
  const { settings } = entity;
  const rows = [["Created", time(entity.created_at)], ["Changed", time(entity.modified_at)], ["Used", time(entity.accessed_at)]];
  if (settings.default_message_time_to_live_s !== undefined) rows.push(["Time to live", duration(settings.default_message_time_to_live_s)], ["Deleted when idle for", duration(settings.auto_delete_on_idle_s)]);
  if (settings.lock_duration_s !== undefined) rows.push(["Lock duration", duration(settings.lock_duration_s)], ["Maximum delivery count", count(settings.max_delivery_count)]);
  if (settings.requires_duplicate_detection) rows.push(["Duplicate detection", `within ${duration(settings.duplicate_detection_history_time_window_s)}`]);
  for (const [name, target] of [["Forwards to", settings.forward_to], ["Forwards dead letters to", settings.forward_dead_lettered_messages_to]]) {
    if (target) rows.push([name, html`<a href=${link("entity", { path: target })}>${target}</a>`]);
  }
  if (settings.user_metadata) rows.push(["User metadata", settings.user_metadata]);
  return rows;
}
