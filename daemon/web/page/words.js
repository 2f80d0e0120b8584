// Figures as a person reads them: three digits, and the unit that fits, on one line with them.

import { isSaved } from "./api.js";

export const NOTHING = "–";
/** Between a number and its unit no line ends. */
export const SPACE = "\u00a0";

/** Print a number with three digits and no exponent. */
export function digits(value, significant = 3) {
  if (value === 0) return "0";
  const decimals = significant - 1 - Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(Math.max(decimals, 0), 12));
}

function scaled(value, units) {
  if (value === null || value === undefined) return NOTHING;
  const found = units.find(([size]) => Math.abs(value) >= size) ?? units.at(-1);
  return value === 0 ? `0${SPACE}${units[0][1]}` : `${digits(value / found[0])}${SPACE}${found[1]}`;
}

export const seconds = (value) => scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
export const joules = (value) => scaled(value, [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"]]);
export const watts = (value) => scaled(value, [[1, "W"], [1e-3, "mW"]]);
export const hertz = (value) => scaled(value, [[1e9, "GHz"], [1e6, "MHz"], [1, "Hz"]]);
export const bytes = (value) => scaled(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [1, "B"]]);
export const rate = (value) => (value === null || value === undefined ? NOTHING : `${digits(value)}/s`);
export const count = (value) => (value ?? null) === null ? NOTHING : value.toLocaleString("en");
export const perUnit = (run) =>
  (run?.joules_per_unit ?? null) === null ? "" : ` ${joules(run.joules_per_unit)} gross per ${run.unit}`;
export const NET = "above idle";
export const GROSS = "whole module";
/** Print half an interval in percent; more digits would promise more than a clock or sensor keeps. */
export const half = (value) => `±${SPACE}${value < 0.1 ? `<${SPACE}0.1` : digits(value, 2)}${SPACE}%`;
export const percent = (value) =>
  (value ?? null) === null ? NOTHING : `${(100 * value).toFixed(1)}${SPACE}%`;

const two = (number) => String(number).padStart(2, "0");

/** Return a date whose parts in UTC are those of the clock that the reader is shown. */
function clockOf(time) {
  const date = new Date(time * 1000);
  // A saved page goes to readers in other zones: all see one time, that of its tables.
  if (!isSaved) date.setTime(date.getTime() - date.getTimezoneOffset() * 60_000);
  return date;
}

/** Print the time of day: where the reader is, or in UTC on a saved page. */
export function clock(time, withSeconds = true) {
  const date = clockOf(time);
  const minutes = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  return withSeconds ? `${minutes}:${two(date.getUTCSeconds())}` : minutes;
}

/** Print the day as well, unless it is today. */
export function moment(time) {
  const day = clockOf(time).toISOString().slice(0, 10);
  const today = clockOf(Date.now() / 1000).toISOString().slice(0, 10);
  return day === today && !isSaved ? clock(time) : `${day} ${clock(time)}`;
}

/** Print day, time and zone: for what is copied into a report. */
export const stamp = (time) => `${clockOf(time).toISOString().slice(0, 10)} ${clock(time)} ${zone()}`;

/** Print a stretch of time that a person waits. */
export function duration(value, decimals = 1) {
  if (value < 60) return `${value.toFixed(value < 10 ? decimals : 0)}${SPACE}s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Print how long ago something was, in one unit. */
export function ago(value) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([one]) => value >= 2 * one) ?? [1, "s"];
  return `${Math.max(0, Math.floor(value / size))}${SPACE}${unit} ago`;
}

/** Print the zone of all times of day. */
export function zone() {
  if (isSaved) return "UTC";
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "−" : "+"}${two(hours)}:${two(rest)}`;
}
