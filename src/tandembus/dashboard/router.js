// Pages by the part of the address behind '#': "#/entity?path=orders&tab=messages".
import { useEffect, useState } from "./vendor/htm-preact.js";
import { query } from "./api.js";

export function place() {
  const [path, rest] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { page: path || "overview", parameters: Object.fromEntries(new URLSearchParams(rest ?? "")) };
}

export function link(page, parameters) { return `#/${page}${query(parameters)}`; }
export function go(page, parameters) { location.hash = link(page, parameters); }
/** The same page with other parameters, without a step in the history: for filters that are typed. */
export function adjust(parameters) {
  const { page, parameters: before } = place();
  history.replaceState(null, "", link(page, { ...before, ...parameters }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function usePlace() {
  const [at, setAt] = useState(place());
  useEffect(() => {
    const moved = () => setAt(place());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return at;
}
