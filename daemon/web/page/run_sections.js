// What a run's record holds, in words and tables; what it does not hold has no place.

import { runUrl } from "./api.js";
import { draw, explained, make, row, table } from "./dom.js";
import { bytes, count, digits, duration, hertz, joules, moment, NOTHING, percent, seconds, SPACE, watts, zone } from "./words.js";

const WITHHOLDING = ["insufficient_samples", "aliased", "overlapped"];
const FAULTS = { stands_still: "stands still", runs_back: "runs back", jumps: "jumps" };
// A 99.9th percentile of fewer is little else than the longest one.
const ENOUGH_FOR_P999 = 1000;
// As the daemon's rules have it: the interval of fewer is not known well enough.
const FEWEST_INFERENCES = 200;
const TERMS = {
  sampling: "what power did between two readings is not seen",
  quantisation: "the sensor rounds",
  idle_wander: "idle power wanders, and its level in the window is inferred",
  window_edges: "readings come a little late, and power steps where work begins and ends",
  baseline_drift: "idle power was not the same before and after",
};
const VERDICTS = {
  pure_dla: "All layers run on the DLA.",
  dla_plus_reformat: "What computes runs on the DLA; the GPU only changes the form of tensors.",
  mixed: "Layers that compute run on both, DLA and GPU.",
  gpu_only: "All layers run on the GPU.",
  unknown: "Nothing tells where the layers run.",
};

function section(id, title, ...children) {
  const heading = make("h2", { id }, title);
  return make("section", { "aria-labelledby": id }, heading, ...children);
}

// What a record of an older release may not have.
const NONE = {
  cold_start_seconds: {},
  input_shapes: {},
  other_processes: [],
  overlapping_runs: [],
  phases: {},
  quality: [],
  stages: {},
  text: [],
  worker_log: [],
};

/** Return a record with an empty value for what an older release does not write. */
export function completed(record) {
  return { ...NONE, ...record };
}

/** Return the sections of a run, apart from its timeline; what the record lacks has none. */
export function sectionsOf(report) {
  const sections = [
    figures(report), latency(report), deadline(report), energy(report), placement(report), telemetry(report),
    processes(report), overlaps(report), worker(report), facts(report),
  ];
  return sections.filter((one) => one !== null);
}

/** Return the line below the title of a run: how it ended, when, and where. */
export function summaryOf(report, isSimulated) {
  const started = `${moment(report.started_wall_ns / 1e9)} (${zone()})`;
  const took = `for ${duration((report.ended_ns - report.started_ns) / 1e9)}`;
  const words = new Set([report.outcome, started, took, report.backend, isSimulated && "simulated"]);
  return [...words].filter(Boolean).join(" · ");
}

const paragraph = (...words) => make("p", {}, ...words);

export function flags(report) {
  if (report.quality.length === 0) return null;
  return section("flags", "Flags", make("dl", {}, ...explained(report.quality, report.foreign_dla_processes)));
}

/** A bar from nothing to a value, or an interval with its value, on a scale to the most. */
function measure(most, value, low = null, high = null) {
  const share = (one) => 100 * Math.min(Math.max(one / most, 0), 1);
  const of = (one, from = 0) => `${(share(one) - share(from)).toFixed(2)}%`;
  const parts =
    low === null
      ? [draw("rect", { y: 3, height: 8, width: of(value) })]
      : [
          draw("rect", { class: "span", y: 3, height: 8, x: of(low), width: of(high, low) }),
          draw("rect", { y: 1, height: 12, x: of(value), width: 2 }),
        ];
  return draw("svg", { class: "measure", "aria-hidden": "true" }, ...parts);
}

const RANKS = [
  ["shortest", "min_seconds"],
  ["mean", "mean_seconds"],
  ["p50 (median)", "p50_seconds"],
  ["p90", "p90_seconds"],
  ["p95", "p95_seconds"],
  ["p99", "p99_seconds"],
  ["p99.9", "p999_seconds"],
  ["longest", "max_seconds"],
];

function distribution(caption, times) {
  const heads = ["share", "latency", `bar: 0 to ${seconds(times.max_seconds)}`];
  const ranks = RANKS.filter(([, key]) => key !== "p999_seconds" || times.count >= ENOUGH_FOR_P999);
  const made = table(caption, heads, []);
  made.querySelector("tbody").append(
    ...ranks.map(([name, key]) => {
      const line = row(heads, [name, seconds(times[key]), measure(times.max_seconds, times[key])]);
      line.lastChild.className = "wide";
      return line;
    }),
  );
  return made;
}

/** The text of the run, as the log and the commands print it. */
function figures(report) {
  if (report.text.length === 0) return null;
  const list = report.text.flatMap(({ label, value, unit, interval }) => [
    make("dt", {}, label), make("dd", {}, [[value, unit].filter(Boolean).join(SPACE), interval].filter(Boolean).join(" ")),
  ]);
  return section("figures", "Figures", make("dl", {}, ...list));
}

function latency(report) {
  if (!report.latency) return null;
  const times = report.latency;
  const parts = [];
  parts.push(distribution("By the host's clock; the percentiles are exact", times));
  if (report.device_latency) {
    parts.push(distribution("By the device's own events", report.device_latency));
  }
  const stages = Object.entries(report.stages);
  if (stages.length > 0) {
    const heads = ["stage", "median", "mean", "p99"];
    const rows = stages.map(([name, stage]) => [
      name.replaceAll("_", " "), seconds(stage.p50_seconds), seconds(stage.mean_seconds), seconds(stage.p99_seconds),
    ]);
    parts.push(table("Stages of an inference", heads, rows));
  }
  const cold = Object.entries(report.cold_start_seconds);
  if (cold.length > 0) {
    const said = cold.map(([part, took]) => `${part.replaceAll("_", " ")} ${seconds(took)}`);
    parts.push(paragraph(`Cold start, apart from all that: ${said.join(", ")}.`));
  }
  return section("latency", "Latency", ...parts);
}

function deadline(report) {
  const limits = report.deadline;
  if (!limits) return null;
  const limit = seconds(limits.deadline_seconds);
  const words = `${count(limits.misses)} of ${count(report.inferences)} inferences took longer than ${limit}`;
  if (limits.misses === 0) return section("deadline", "Deadline", paragraph(`${words}.`));
  const parts = [paragraph(`${words}, the longest by ${seconds(limits.worst_lateness_seconds)}.`)];
  // A record of an older release has no such list.
  const flags = limits.flags_at_misses ?? [];
  if (flags.length > 0) {
    parts.push(paragraph(`Flags that held during a miss: ${flags.join(", ")}. They need not be its cause.`));
  }
  return section("deadline", "Deadline", ...parts);
}

function energy(report) {
  const measured = report.energy;
  if (!measured) return null;
  const parts = [
    ...totals(measured),
    ...withheld(report),
    ...uncertainty(measured),
    ...counters(measured),
  ];
  if (measured.sensor_reason) parts.push(paragraph(`The readings of power are not to be trusted: ${measured.sensor_reason}.`));
  if (measured.net_reason) parts.push(paragraph(`There is no net energy: ${measured.net_reason}.`));
  if (measured.phases?.length > 0) {
    const heads = ["phase", "times", "time", "gross (whole module)", "95 % interval", "per unit", "by"];
    parts.push(table("Phases of the application", heads, measured.phases.map(phaseRow)));
  }
  const rows = Object.entries(measured.rails).map(([name, rail]) => [
    measured.total_rails.includes(name) ? name : `${name} (not in the total)`,
    watts(rail.mean_watts), watts(rail.baseline_watts), joules(rail.gross_joules), joules(rail.net_joules),
    joules(rail.counter_joules),
  ]);
  parts.push(table("Rails", ["rail", "mean power", "idle power", "gross (whole rail)", "net (above idle)", "by its own counter"], rows));
  return section("energy", "Energy", ...parts);
}

const isKnown = (value) => value !== null && value !== undefined;
const between = ({ low, high }) => `${joules(low)} to ${joules(high)}`;

/** Gross and net energy of the module, as figures and as bars on one scale. */
function totals(measured) {
  const kinds = [
    ["gross (whole module)", measured.gross_joules, measured.gross_interval, measured.gross_joules_per_inference, measured.gross_joules_per_inference_interval],
    ["net (above idle)", measured.net_joules, measured.net_interval, measured.net_joules_per_inference, measured.net_joules_per_inference_interval],
  ].filter(([, whole]) => isKnown(whole));
  if (kinds.length === 0) return [paragraph("No module total: the rails fit no board that is known.")];
  const most = Math.max(...kinds.map(([, whole, interval]) => interval?.high ?? whole));
  const scale = `bar: 0 to ${joules(most)}, steady phase`;
  const heads = ["energy", "steady phase", "95 % interval", "of an inference", scale];
  const made = table(`Module rail energy: ${measured.total_rails.join(" + ")}`, heads, []);
  made.querySelector("tbody").append(...kinds.map((kind) => energyRow(heads, most, kind)));
  return [made];
}

/** Why the energy of an inference is withheld. */
function withheld(report) {
  const measured = report.energy;
  if (!isKnown(measured.gross_joules) && !isKnown(measured.net_joules)) return [];
  const isCounted = measured.gross_method === "counter";
  const reasons = report.quality.filter((flag) => WITHHOLDING.includes(flag) && !(isCounted && flag === "aliased"));
  if (reasons.length === 0 && report.inferences > 0 && report.inferences < FEWEST_INFERENCES) {
    reasons.push(`fewer than ${FEWEST_INFERENCES} inferences`);
  }
  return reasons.length === 0 ? [] : [paragraph(`Energy of an inference is withheld: ${reasons.join(", ")}.`)];
}

/** What the intervals are mostly made of, and what they do not contain. */
function uncertainty(measured) {
  const parts = [];
  const term = measured.largest_uncertainty;
  if (term) parts.push(paragraph(`Largest uncertainty: ${term.replaceAll("_", " ")}: ${TERMS[term] ?? ""}.`));
  if (isKnown(measured.offset_joules)) {
    const most = joules(measured.offset_joules);
    parts.push(paragraph(`Not in the interval: an offset of the sensors of up to ${most}, the same in every run on this board. It cancels in net energy.`));
  }
  return parts;
}

/** What the board's own energy counters say, and which of them are not used. */
function counters(measured) {
  const parts = [];
  if (measured.gross_method === "counter") {
    let words = "Gross energy is that of the board's own energy counter.";
    if (isKnown(measured.integral_joules)) {
      const interval = measured.integral_interval ? ` (${between(measured.integral_interval)})` : "";
      words += ` The readings of power add up to ${joules(measured.integral_joules)}${interval}.`;
    }
    parts.push(paragraph(words));
  } else if (isKnown(measured.counter_joules)) {
    // Records of older releases have the counter for comparison only.
    const edge = measured.counter_edge_joules ? ` ± ${joules(measured.counter_edge_joules)}` : "";
    parts.push(paragraph(`The board's own energy counter says ${joules(measured.counter_joules)}${edge}.`));
  }
  for (const [name, rail] of Object.entries(measured.rails)) {
    if (rail.counter_fault) parts.push(paragraph(`The energy counter of ${name} ${FAULTS[rail.counter_fault] ?? rail.counter_fault}, so it is not used.`));
  }
  return parts;
}

function phaseRow({ name, count: times, seconds: took, gross_joules: gross, gross_interval: interval, joules_per_unit: each, method, reason }) {
  const limits = interval ? between(interval) : NOTHING;
  return [name, count(times), seconds(took), joules(gross), limits, joules(each), method ?? reason];
}

function energyRow(heads, most, [name, whole, interval, each, eachInterval]) {
  const [low, high] = interval ? [interval.low, interval.high] : [null, null];
  // Records of older releases have the interval of the whole energy only.
  const factor = each / whole;
  const limits = eachInterval ?? (interval && { low: low * factor, high: high * factor });
  let perInference = joules(each);
  if (limits && isKnown(each)) perInference += ` (${between(limits)})`;
  const cells = [name, joules(whole), interval ? between(interval) : NOTHING];
  const line = row(heads, [...cells, perInference, measure(most, whole, low, high)]);
  line.lastChild.className = "wide";
  return line;
}

function placement(report) {
  const built = report.built;
  if (!built) return null;
  const { verdict, dla_layers: dla, gpu_layers: gpu, reformat_layers: reformat, loadables } = built.placement;
  const parts = [paragraph(make("b", {}, verdict), `: ${VERDICTS[verdict] ?? ""}`)];
  const fellBack = report.device.startsWith("dla");
  const lists = [
    [fellBack ? "Layers that fell back to the GPU" : "Layers on the GPU", gpu, fellBack],
    ["Layers on the GPU that only reformat", reformat, false],
    ["Layers on the DLA", dla, false],
  ];
  for (const [title, names, isOpen] of lists) {
    if (names.length === 0) continue;
    const items = names.map((name) => make("li", {}, name));
    const summary = make("summary", {}, `${title}: ${names.length}`);
    parts.push(make("details", { open: isOpen ? "" : null }, summary, make("ul", {}, ...items)));
  }
  if ((loadables ?? null) !== null) parts.push(paragraph(`${loadables} DLA loadables.`));
  for (const note of built.notes) parts.push(paragraph(note));
  return section("placement", "Placement", ...parts);
}

function telemetry(report) {
  const board = report.telemetry;
  if (!board) return null;
  const loads = Object.entries(board.utilization).map(([name, value]) => [
    board.sources?.[name] === "nvml" ? `${name}, by NVML` : name, percent(value.mean_ratio), percent(value.max_ratio),
  ]);
  for (const [core, share] of Object.entries(board.dla_active)) {
    loads.push([`${core} switched on`, percent(share), NOTHING]);
  }
  const clocks = Object.entries(board.frequency).map(([name, value]) => [
    name, hertz(value.mean_hertz), hertz(value.min_hertz),
  ]);
  const zones = Object.entries(board.temperature).map(([name, value]) => [
    name, `${value.max_celsius.toFixed(1)}${SPACE}°C`, `${value.delta_celsius >= 0 ? "+" : ""}${value.delta_celsius.toFixed(1)}${SPACE}°C`,
  ]);
  const parts = [
    loads.length > 0 && table("Load", ["signal", "mean", "highest"], loads),
    loads.length > 0 &&
      paragraph("A load has no interval: each sample shows an unknown short time before it."),
    clocks.length > 0 && table("Clocks", ["clock", "mean", "lowest"], clocks),
    zones.length > 0 && table("Temperatures", ["zone", "highest", "change"], zones),
  ];
  const gpuWatts = board.gpu_power_watts ?? null;
  if (gpuWatts !== null) parts.push(paragraph(`Mean power of the GPU, by NVML: ${watts(gpuWatts)}. It is not a rail.`));
  const throttled = Object.entries(board.throttle).map(([kind, times]) => `${times} ${kind}`);
  if (throttled.length > 0) parts.push(paragraph(`Clocks held down: ${throttled.join(", ")}.`));
  const lead = paragraph(`${count(board.samples)} samples of the steady phase.`);
  return section("telemetry", "The machine meanwhile", lead, ...parts.filter(Boolean));
}

function processes(report) {
  if (report.other_processes.length === 0) return null;
  const heads = ["process", "CPU time", "DLA time"];
  const rows = report.other_processes.map((process) => [
    process.name,
    seconds(process.cpu_seconds),
    Object.entries(process.dla_seconds).map(([core, busy]) => `${core} ${seconds(busy)}`).join(", ") || NOTHING,
  ]);
  const caption = "Use of the board in the steady phase and the idle phases of this run";
  return section("processes", "Other processes meanwhile", table(caption, heads, rows));
}

function overlaps(report) {
  if (report.overlapping_runs.length === 0) return null;
  const items = report.overlapping_runs.map((id) =>
    make("li", {}, make("a", { href: runUrl(id) }, id)),
  );
  const words = "The rails show the sum of this run and of these; neither is given a share of it.";
  return section("overlaps", "Runs that overlapped it", paragraph(words), make("ul", {}, ...items));
}

function worker(report) {
  if (report.worker_log.length === 0) return null;
  const lines = report.worker_log.map((line) => make("li", {}, line));
  return section("worker", "Last lines of the worker", make("ul", {}, ...lines));
}

function facts(report) {
  const { environment: where, built } = report;
  const versions = Object.entries(where.versions).map(([name, version]) => `${name} ${version}`);
  const inputs = Object.entries(report.input_shapes).map(([name, shape]) => `${name} ${shape.join("x")}`);
  const known = {
    run: report.run_id,
    model: report.model,
    "model SHA-256": report.model_sha256,
    "back-end": report.backend,
    precision: built?.requested_precision,
    batch: report.batch,
    inputs: inputs.join(", "),
    "late by": (report.lateness_seconds ?? null) === null ? null : seconds(report.lateness_seconds),
    "peak memory of the worker": report.process_peak_bytes ? bytes(report.process_peak_bytes) : null,
    "peak memory on the device": report.device_peak_bytes ? bytes(report.device_peak_bytes) : null,
    "peak GPU memory by process": report.gpu_peak_bytes ? bytes(report.gpu_peak_bytes) : null,
    "least memory available": report.least_available_bytes ? bytes(report.least_available_bytes) : null,
    board: [where.board, where.module].filter(Boolean).join(", "),
    L4T: where.l4t,
    JetPack: where.jetpack,
    "power mode": where.power_mode,
    telemetry: [
      where.telemetry_source,
      where.telemetry_interval_seconds && `every ${digits(where.telemetry_interval_seconds)} s`,
    ].filter(Boolean).join(", "),
    versions: versions.join(", "),
  };
  const entries = Object.entries(known).filter(([, fact]) => fact);
  const list = entries.flatMap(([name, fact]) => [make("dt", {}, name), make("dd", {}, String(fact))]);
  return section("facts", "Where and how", make("dl", {}, ...list));
}
