import { html } from "../vendor/htm-preact.js";
import { Page } from "../ui.js";

export function FaultsPage() {
  return html`<${Page} title="FaultsPage"><//>`;
}
