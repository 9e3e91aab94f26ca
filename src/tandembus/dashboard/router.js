// Pages by the part of the address behind '#': "#/entity?path=orders&tab=messages".
import { useEffect, useState } from "./html.js";
import { query } from "./api.js";
import { forget, hasUnsaved, mayBeLost } from "./unsaved.js";

export function place() {
  const [path, rest] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { page: path || "overview", parameters: Object.fromEntries(new URLSearchParams(rest ?? "")) };
}

export function link(page, parameters) { return `#/${page}${query(parameters)}`; }
export function go(page, parameters) { location.hash = link(page, parameters); }
/** The same page with other parameters, without a step in the history: for filters that are typed. */
export function adjust(parameters) {
  const { page, parameters: before } = place();
  history.replaceState(history.state, "", link(page, { ...before, ...parameters }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// Steps of the history are numbered, since a browser tells that there was a step, but not in which direction.
let step = stepHere(0);
/** Grows when somebody leaves what was not saved: the same page begins anew then. */
let visit = 0;
let isAsking = false;
let show = () => {};

function stepHere(ifNew) {
  if (history.state?.step === undefined) history.replaceState({ ...history.state, step: ifNew }, "");
  return history.state.step;
}

/** By a link, Back, or a written address, the address is another already: with changes that are not saved it is brought
    back until somebody has said what should become of them. */
async function moved() {
  const next = stepHere(step + 1);
  if (next === step || !hasUnsaved()) {
    step = next;
    show({ ...place(), visit });
    return;
  }
  history.go(step - next);
  if (isAsking) return;
  isAsking = true;
  const isLeaving = await mayBeLost();
  isAsking = false;
  if (!isLeaving) return;
  forget();
  visit += 1;
  history.go(next - step);
}
addEventListener("hashchange", moved);

export function usePlace() {
  const [at, setAt] = useState({ ...place(), visit });
  useEffect(() => {
    show = setAt;
    setAt({ ...place(), visit });
    return () => { show = () => {}; };
  }, []);
  return at;
}
