// The board at this moment: memory, cores, clocks, fans, engines, throttling and processes.

import { draw, make, table } from "./dom.js";
import { ago, bytes, hertz, NOTHING, percent, SPACE, watts } from "./words.js";

const CORE = 7;
const TALL = 18;
const GPU_USERS = 3;

/** Return "bad" or "warn" for a share of which little is left. */
export const lowLevel = (share) => (share < 0.05 ? "bad" : share < 0.1 ? "warn" : "");

function tile(name, value, { level = "", chart = null, more = "" } = {}) {
  return make("li", { class: level || null }, make("span", { class: "name" }, name), " ", chart, make("b", {}, value), more && make("small", {}, ` ${more}`));
}

function bar(share) {
  const wide = 64;
  return draw(
    "svg", { class: "gauge", width: wide, height: 8, "aria-hidden": "true" },
    draw("rect", { class: "rest", width: wide, height: 8 }),
    draw("rect", { width: (wide * Math.min(Math.max(share, 0), 1)).toFixed(1), height: 8 }),
  );
}

/** A column per core; one that is offline has none. */
function columns(loads) {
  const bars = loads.flatMap((load, index) => {
    const tall = load === null ? 0 : Math.max(1, load * TALL);
    return [
      draw("rect", { class: "rest", x: index * CORE, width: CORE - 2, height: TALL }),
      draw("rect", { x: index * CORE, y: (TALL - tall).toFixed(1), width: CORE - 2, height: tall.toFixed(1) }),
    ];
  });
  return draw("svg", { class: "gauge", width: loads.length * CORE, height: TALL, "aria-hidden": "true" }, ...bars);
}

// As in top: how near a zone is to the temperature at which the board shuts down.
const NEAR_CELSIUS = 20;
const AT_CELSIUS = 8;
const IS_POWER = new Set(["powered", "on"]);

/** Return "bad" or "warn" for a zone near the temperature at which the board shuts down. */
export function heatLevel(left) {
  return left <= AT_CELSIUS ? "bad" : left <= NEAR_CELSIUS ? "warn" : "";
}

/** Return "bad" or "warn" for a power near its budget. */
export function powerLevel(value, budget) {
  return !budget ? "" : value > budget ? "bad" : value > 0.9 * budget ? "warn" : "";
}

/** Return the figures that a reader in a hurry needs: power, loads, and the hottest zone with its limit. */
export function vitals({ vital, limits }) {
  const { module_watts: power, gpu_ratio: gpu, dla, hottest } = vital;
  const made = [];
  const budget = limits.power_watts;
  if (power !== null) made.push(tile("module", watts(power), { level: powerLevel(power, budget), more: budget ? `budget ${watts(budget)} (configured)` : "" }));
  if (gpu !== null) made.push(tile("GPU", percent(gpu)));
  for (const [core, [ratio, word]] of Object.entries(dla)) {
    // A share of time with power is no load: beside one it would be read as such.
    const isDown = ratio === 0 && IS_POWER.has(word);
    // A core without work has no power: "off" would be read as disabled.
    made.push(tile(core.toUpperCase(), isDown ? "idle" : percent(ratio), { more: isDown ? "powered down" : word }));
  }
  if (hottest !== null) {
    const { zone, celsius, shutdown_celsius: trip } = hottest;
    const limit = trip === null ? "no limit known" : `shuts down at ${trip.toFixed(1)}${SPACE}°C`;
    const level = trip === null ? "" : heatLevel(trip - celsius);
    made.push(tile(`hottest: ${zone}`, `${celsius.toFixed(1)}${SPACE}°C`, { level, more: limit }));
  }
  return made;
}

/** Return tiles of what is known. */
export function tiles({ now, signal_sources: sources }, throttled, span) {
  const only = (name) => now[name][""] ?? null;
  const made = [];
  const [used, total] = [only("ram_used"), only("ram_total")];
  if (used !== null && total) {
    const left = only("ram_available") ?? total - used;
    const held = only("gpu_memory_total") === null ? only("gpu_memory_used") : null;
    const ofGpu = held === null ? "" : `, ${bytes(held)} held by the GPU`;
    made.push(tile("RAM", `${bytes(used)} of ${bytes(total)}`, { chart: bar(used / total), level: lowLevel(left / total), more: `${bytes(left)} available${ofGpu}` }));
  }
  if (only("largest_free_block") !== null) made.push(tile("largest free block", bytes(only("largest_free_block"))));
  const swap = only("swap_total");
  if (swap) made.push(tile("swap", `${bytes(only("swap_used"))} of ${bytes(swap)}`, { chart: bar(only("swap_used") / swap), level: lowLevel(1 - only("swap_used") / swap) }));
  const own = only("gpu_memory_total");
  if (own) made.push(tile("GPU's own memory", `${bytes(only("gpu_memory_used"))} of ${bytes(own)}`, { chart: bar(only("gpu_memory_used") / own), level: lowLevel(1 - only("gpu_memory_used") / own) }));
  for (const [rail, volts] of Object.entries(now.volts)) {
    const current = rail in now.amperes ? `${now.amperes[rail].toFixed(2)} A, ` : "";
    made.push(tile(rail, `${volts.toFixed(2)} V`, { more: `${current}lowest ${now.lowest_volts[rail].toFixed(2)} V` }));
  }
  const cores = Object.keys({ ...now.online, ...now.cores }).sort((a, b) => a - b);
  if (cores.length > 0) {
    const loads = cores.map((core) => now.cores[core] ?? null);
    const online = loads.filter((load) => load !== null);
    const mean = online.reduce((sum, load) => sum + load, 0) / Math.max(online.length, 1);
    made.push(tile("CPU cores", percent(mean), { chart: columns(loads), more: `${online.length} of ${cores.length} online, busiest ${percent(Math.max(...online, 0))}` }));
  }
  if (sources.tegra_gpu_utilization_ratio === "nvml") made.push(tile("GPU load by", "NVML"));
  if (only("gpu_power") !== null) made.push(tile("GPU power by NVML", watts(only("gpu_power"))));
  const users = Object.entries(now.gpu_memory).sort(([, one], [, other]) => other - one);
  if (users.length > 0) {
    const most = users.slice(0, GPU_USERS).map(([name, used]) => `${name} ${bytes(used)}`);
    made.push(tile("GPU memory", bytes(users.reduce((sum, [, used]) => sum + used, 0)), { more: most.join(", ") }));
  }
  for (const [name, clock] of Object.entries(now.clocks)) made.push(tile(`${name.toUpperCase()} clock`, hertz(clock)));
  for (const [name, speed] of Object.entries(now.fans)) made.push(tile(/fan/i.test(name) ? name : `fan ${name}`, percent(speed)));
  const engines = Object.entries(now.engines).filter(([, on]) => on === 1).map(([name]) => name);
  if (Object.keys(now.engines).length > 0) made.push(tile("engines on", engines.join(", ") || "none"));
  for (const { kind, events, last } of throttled) {
    const times = events === 1 ? "once" : `${events} times`;
    made.push(tile(`throttled by ${kind}`, times, { level: "warn", more: `in ${span}, the last ${ago(last)}` }));
  }
  return made;
}

/** Return a table of who uses CPU, memory and each DLA core, or null where that is not read. */
export function processTable({ processes }) {
  if (processes.length === 0) return null;
  const cores = [...new Set(processes.flatMap((one) => Object.keys(one.dla ?? {})))].sort();
  const heads = ["process", "CPU cores", "memory", ...cores.map((core) => core.toUpperCase())];
  const rows = processes.map((one) => [
    [one.name, one.processes > 1 && make("small", {}, ` × ${one.processes}`)].filter(Boolean),
    one.cores?.toFixed(2) ?? NOTHING,
    bytes(one.memory_bytes),
    ...cores.map((core) => percent(one.dla?.[core])),
  ]);
  const caption = "CPU: cores in use between the last two readings. DLA: share of the last ten seconds, by its trace";
  return table(caption, heads, rows);
}
