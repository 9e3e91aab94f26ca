import { html } from "../vendor/htm-preact.js";
import { Page } from "../ui.js";

export function CostPage() {
  return html`<${Page} title="CostPage"><//>`;
}
