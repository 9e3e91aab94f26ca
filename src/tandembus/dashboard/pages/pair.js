import { html } from "../vendor/htm-preact.js";
import { Page } from "../ui.js";

export function PairPage() {
  return html`<${Page} title="PairPage"><//>`;
}
