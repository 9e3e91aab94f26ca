import { html } from "../vendor/htm-preact.js";
import { Page } from "../ui.js";

export function EntityPage() {
  return html`<${Page} title="EntityPage"><//>`;
}
