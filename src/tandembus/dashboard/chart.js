// Time series, drawn by uPlot: made once, then only given new values.
import { html, useEffect, useRef } from "./html.js";
import { short } from "./format.js";

/** Between the times below a chart: whole seconds, minutes and hours. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

/** Messages are not cut in halves. */
const WHOLE_STEPS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();

/** As it is in the theme of the moment: a canvas knows no variables. */
function color(name) {
  const probe = document.getElementById("app");
  probe.style.setProperty("outline-color", `var(${name})`);
  return getComputedStyle(probe).outlineColor;
}

function options(series, width, height, format) {
  const axis = { stroke: () => color("--muted"), grid: { stroke: () => color("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width, height,
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { live: true },
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, (high ?? 0) * 1.1)] } },
    axes: [{ ...axis, values: (_plot, ticks) => ticks.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false })), space: 80, incrs: STEPS_S },
           { ...axis, values: (_plot, ticks) => ticks.map((tick) => format(tick)), size: 56, ...(format === short ? { incrs: WHOLE_STEPS } : {}) }],
    series: [{ label: "at", value: (_plot, at) => (at ? new Date(at * 1000).toLocaleTimeString([], { hour12: false }) : "–") },
      ...series.map((one, index) => ({
        label: one.label, width: 2, points: { show: false },
        stroke: () => color(`--chart-${index + 1}`),
        value: (_plot, value) => (value === null || value === undefined ? "–" : format(value)),
      }))],
  };
}

/** series: [{ label, values: [times, numbers] }], all with the same times. */
export function Chart({ series, label, title, height = 190, format = short }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = [series[0].values[0], ...series.map((one) => one.values[1])];
  useEffect(() => {
    const element = place.current;
    plot.current = new window.uPlot(options(series, element.clientWidth || 300, height, format), data, element);
    const watch = new ResizeObserver(() => {
      if (element.clientWidth) plot.current.setSize({ width: element.clientWidth, height });
    });
    watch.observe(element);
    const repaint = () => {
      plot.current.redraw(false);
      // The legend is no part of the drawing: uPlot colours it once.
      element.querySelectorAll(".u-series").forEach((row, index) => { if (index) row.querySelector(".u-marker").style.borderColor = color(`--chart-${index}`); });
    };
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", repaint);
    addEventListener("tandembus-theme", repaint);
    return () => {
      watch.disconnect();
      dark.removeEventListener("change", repaint);
      removeEventListener("tandembus-theme", repaint);
      plot.current.destroy();
    };
  }, [series.map((one) => one.label).join()]);
  useEffect(() => { plot.current.setData(data); });
  return html`<figure class="chart">${title && html`<figcaption>${title}</figcaption>`}<div ref=${place} role="img" aria-label=${label}></div></figure>`;
}
