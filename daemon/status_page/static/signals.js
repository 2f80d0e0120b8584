// Which signals a chart shows, and what they are called.

import { digits, NOTHING, SPACE } from "./words.js";

const SOURCES = {
  firmware: "busy when asked (firmware)",
  ftrace: "busy (ftrace)",
  powered: "powered",
  tegrastats: "busy (tegrastats)",
};
const LOADS = { gpu: "GPU", emc: "memory (EMC)", cpu: "CPU" };

export const CHARTS = [
  { id: "power", title: "Power", unit: "W", factor: 1, fromZero: true, holds: /^watts\// },
  {
    id: "load", title: "GPU, memory and CPU load", unit: "%", factor: 100, fromZero: true, top: 100,
    holds: /^ratio\/(gpu|emc|cpu)$/,
  },
  {
    id: "dla", title: "DLA", unit: "%", factor: 100, fromZero: true, top: 100,
    holds: /^(ratio|on)\/dla/,
  },
  // Boards have a dozen zones; the hottest are what matters.
  { id: "temperature", title: "Temperature", unit: "°C", factor: 1, shown: 4, holds: /^celsius\// },
];

/** Name a signal for its reader; a load of a DLA with the source that says so. */
export function labelOf(name) {
  const [kind, rest] = [name.slice(0, name.indexOf("/")), name.slice(name.indexOf("/") + 1)];
  if (kind === "on") return `${rest.toUpperCase()} on (gate)`;
  if (kind !== "ratio") return rest;
  const [core, source] = rest.split(":");
  return source === undefined ? LOADS[core] : `${core.toUpperCase()} ${SOURCES[source] ?? source}`;
}

/** A gate is no load: it is drawn as an area behind the lines. */
export const isArea = (name) => name.startsWith("on/");

/** Print a value of a chart, with its unit. */
export function figure(chart, value) {
  if (value === null || value === undefined) return NOTHING;
  const shown = value * chart.factor;
  const text = chart.unit === "W" ? digits(shown) : shown.toFixed(chart.unit === "%" ? 0 : 1);
  return `${text}${SPACE}${chart.unit}`;
}
