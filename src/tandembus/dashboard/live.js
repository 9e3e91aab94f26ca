// What is asked again and again, and rates made of totals.
import { useEffect, useRef, useState } from "./html.js";
import { Refusal } from "./api.js";

/** The newest answer of `ask(signal)`, which is called every `everyMs` while the page is seen, one call at a time;
    with 0 once for each change of `dependencies`. Returns { data, error, isStale, isLoading, refresh }. `data` stays until
    there is an answer to what is asked now, and while a later call fails, so that nothing flickers: until then it `isStale`.
    `isLoading`: somebody waits for an answer, since they changed what is asked, or called `refresh`. */
export function usePoll(ask, dependencies, everyMs = 1000) {
  const [state, setState] = useState({ data: null, error: null, answered: null, isAwaited: false });
  const refresh = useRef(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let timer = null;
    let running = false;
    let isAnswered = false;
    let isWantedAgain = false;
    async function turn() {
      clearTimeout(timer);
      isWantedAgain = running;  // what is on its way may be older than what is asked for now
      if (running || abort.signal.aborted) return;
      running = true;
      try {
        const data = await ask(abort.signal);
        if (abort.signal.aborted) return;
        isAnswered = true;
        setState({ data, error: null, answered: dependencies, isAwaited: isWantedAgain });
      } catch (error) {
        if (abort.signal.aborted) return;
        if (!(error instanceof Refusal)) console.error(error);
        setState((before) => ({ data: isAnswered ? before.data : null, error, answered: dependencies, isAwaited: isWantedAgain }));
      } finally {
        running = false;
      }
      if (isWantedAgain) turn();
      else if (!document.hidden && everyMs) timer = setTimeout(turn, everyMs);
    }
    const seen = () => { if (!document.hidden) turn(); };
    refresh.current = () => {
      setState((before) => ({ ...before, isAwaited: true }));
      return turn();
    };
    document.addEventListener("visibilitychange", seen);
    turn();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...dependencies, everyMs]);
  const isStale = !state.answered || dependencies.some((one, index) => one !== state.answered[index]);
  return { data: state.data, error: state.error, isStale, isLoading: isStale || state.isAwaited, refresh: () => refresh.current() };
}

/** Keeps the last `limit` samples of totals ({ at: ms, ...numbers }) and tells rates between neighbours. */
export class Samples {
  constructor(limit = 600) {
    this.limit = limit;
    this.rows = [];
  }

  add(row) {
    const last = this.rows.at(-1);
    if (last && row.at <= last.at) return;
    this.rows.push(row);
    if (this.rows.length > this.limit) this.rows.shift();
  }

  /** Per second, over about the last `spanMs`; null before there are two samples. A restart counts from nothing. */
  rate(name, spanMs = 5000) {
    const last = this.rows.at(-1);
    if (!last) return null;
    const first = this.rows.find((row) => row.at >= last.at - spanMs && row !== last);
    if (!first || first[name] === null || last[name] === null) return null;
    return Math.max(0, (last[name] - first[name]) / ((last.at - first.at) / 1000));
  }

  /** [times in s, values] for a chart; `isTotal`: rates between neighbours instead of the values themselves. */
  series(name, isTotal = false) {
    const rows = isTotal ? this.rows.slice(1) : this.rows;
    return [
      rows.map((row) => row.at / 1000),
      rows.map((row, index) => {
        if (!isTotal) return row[name];
        const before = this.rows[index];
        return Math.max(0, (row[name] - before[name]) / ((row.at - before.at) / 1000));
      }),
    ];
  }
}

/** Whether `is` has been so for a while: what is over at once is not worth a sign that comes and goes. */
export function useLasting(is, delayMs = 150) {
  const [isLasting, setLasting] = useState(false);
  useEffect(() => {
    const timer = is ? setTimeout(() => setLasting(true), delayMs) : null;
    return () => {
      clearTimeout(timer);
      setLasting(false);
    };
  }, [is, delayMs]);
  return is && isLasting;
}

/** `value` as it was when it last stood still for `delayMs`: for what is asked while somebody types. */
export function useSettled(value, delayMs = 250) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delayMs);
    return () => clearTimeout(timer);
  }, [value, delayMs]);
  return settled;
}

export function useSamples(key) {
  const kept = useRef({ key, samples: new Samples() });
  if (kept.current.key !== key) kept.current = { key, samples: new Samples() };
  return kept.current.samples;
}
