// The charts, and how their values are printed.

import { digits, NOTHING, SPACE } from "./words.js";

export const CHARTS = [
  { id: "power", title: "Power", unit: "W", factor: 1, fromZero: true },
  { id: "load", title: "GPU, memory and CPU load", unit: "%", factor: 100, fromZero: true, top: 100 },
  { id: "dla", title: "DLA", unit: "%", factor: 100, fromZero: true, top: 100 },
  // Boards have a dozen zones; the hottest are what matters.
  { id: "temperature", title: "Temperature", unit: "°C", factor: 1, shown: 4 },
];

/** Print a value of a chart, with its unit. */
export function figure(chart, value) {
  if (value === null || value === undefined) return NOTHING;
  const shown = value * chart.factor;
  const text = chart.unit === "W" ? digits(shown) : shown.toFixed(chart.unit === "%" ? 0 : 1);
  return `${text}${SPACE}${chart.unit}`;
}
