// A card per model: the figures of its last good runs by device, and which device is better.

import { explained, make, row, say, table } from "./dom.js";
import { digits, duration, GROSS, half, joules, NET, NOTHING, percent, seconds, SPACE } from "./words.js";

const SHOWN = matchMedia("(max-width: 48rem)").matches ? 2 : 4;
const DLA_USES = {
  powered: "powered", gate: "switched on", ftrace: "busy", tegrastats: "busy", firmware: "busy when asked",
};

/** Return the name of a model without its directory and its end. */
export function nameOf(model) {
  return model.replace(/^builtin:/, "").split("/").at(-1).replace(/\.\w+$/, "");
}

// The configuration has the name of a file, a run its path.
const keyOf = ({ model, batch }) => `${model.split("/").at(-1)} ${batch}`;
const upper = (device) => device.toUpperCase();
const points = (ratio) => `${digits(100 * ratio)}${SPACE}points`;

/** Print a mean with the longer half of its interval in percent. */
function withHalf(figure, show) {
  if (figure === null) return NOTHING;
  if (figure.low === null || figure.value === 0) return show(figure.value);
  const longer = Math.max(figure.high - figure.value, figure.value - figure.low);
  return [`${show(figure.value)} `, make("small", {}, half((100 * longer) / Math.abs(figure.value)))];
}

const KINDS = { net: `Net energy (${NET})`, gross: `Gross energy (${GROSS})` };
const TITLES = { latency: "Time", gross_energy: KINDS.gross, gpu: "GPU load" };
const RUNS_NEEDED = 3;
const EXPECTED = "Here will stand, after 3 runs on each: energy, time and GPU load on the DLA, against the GPU";

/** Return how many runs a comparison still needs, and when the next one is; null if it needs none. */
function awaited(entries, workloads, time) {
  const parts = workloads.map(({ workload, device, active_run: active, due }) => {
    const runs = entries.find((one) => one.workload === workload)?.runs ?? 0;
    const next = active ? "one running" : due === null ? "no start planned" : `next ${due <= time ? "now" : `in ${duration(due - time, 0)}`}`;
    const more = runs < RUNS_NEEDED ? `, ${next}` : "";
    return { runs, text: `${upper(device)} ${Math.min(runs, RUNS_NEEDED)} of ${RUNS_NEEDED} runs${more}` };
  });
  if (parts.every(({ runs }) => runs >= RUNS_NEEDED)) return null;
  return parts.map(({ text }) => text).join("; ");
}

/** Return what the configuration compares: the workloads of a model and batch on GPU and DLA. */
function plannedOf({ workloads }) {
  const plans = new Map();
  for (const one of workloads) {
    if (one.model === null) continue;
    const key = keyOf(one);
    plans.set(key, [...(plans.get(key) ?? []), one]);
  }
  const isOn = (all, kind) => all.some(({ device }) => device.startsWith(kind));
  return [...plans].filter(([, all]) => isOn(all, "gpu") && isOn(all, "dla"));
}

export class Models {
  constructor(section, place, more) {
    Object.assign(this, { section, place, more, models: [], plans: new Map(), words: "", isAll: false });
    more.addEventListener("click", () => {
      this.isAll = true;
      this.#show();
    });
  }

  /** Show models, also those of which the first run is still to come; a board without a DLA gets no words about one. */
  take(models, status) {
    const known = new Set(models.map(keyOf));
    this.plans = new Map(plannedOf(status));
    this.status = status;
    this.models = [...models];
    for (const [key, [{ model, batch }]] of this.plans) {
      if (!known.has(key)) this.models.push({ model, batch, entries: [], verdicts: [], conclusion: null, left_out: 0 });
    }
    this.hasDla = status.board.dla_cores !== 0 || this.models.some((one) => one.entries.some((entry) => entry.device.startsWith("dla")));
    say(this.section.querySelector("h2"), this.hasDla ? "DLA or GPU?" : "Models");
    this.#show();
  }

  /** Show only models of which a name contains these words. */
  filter(words) {
    this.words = words;
    this.#show();
  }

  #show() {
    const found = this.models.filter((one) =>
      [one.model, ...one.entries.flatMap((entry) => [entry.workload, entry.device])]
        .join(" ").toLowerCase().includes(this.words),
    );
    const shown = this.isAll ? found : found.slice(0, SHOWN);
    const waits = shown.map((one) => {
      const plan = this.plans.get(keyOf(one));
      return plan === undefined ? null : awaited(one.entries, plan, this.status.time);
    });
    this.section.hidden = this.models.length === 0;
    this.more.hidden = shown.length === found.length;
    say(this.more, `Show all ${found.length} models`);
    const key = JSON.stringify([shown, waits]);
    if (key === this.key) return;
    this.key = key;
    this.place.replaceChildren(...shown.map((one, index) => card(one, this.hasDla, waits[index])));
  }
}

/** Return a line: an energy with its interval and its kind. */
function energyOf(kind, figure) {
  const words = figure === null ? ["withheld"] : [withHalf(figure, joules)].flat();
  return make("span", { class: "energy" }, make("small", {}, `${kind} `), ...words);
}

/** Return a flag with its meaning, and how many runs of which device have it. */
function doubt(flag, entries) {
  const [name, meaning] = explained([flag]);
  const found = entries.filter(({ flags }) => flags[flag]);
  const runs = found.map((one) => `${upper(one.device)}: ${one.flags[flag]} of ${one.runs} runs`);
  meaning.append(make("small", {}, ` ${runs.join(", ")}`));
  return [name, meaning];
}

function card(model, hasDla, wait) {
  const heads = ["device", "median latency", "energy per inference", "GPU load", ...(hasDla ? ["GPU freed", "own DLA core"] : [])];
  const places = model.entries.map((entry) => entry.device);
  const rows = model.entries.map((entry) => {
    const about = [entry.workload, entry.precision, `${entry.runs} run${entry.runs > 1 ? "s" : ""}`].filter(Boolean).join(", ");
    return row(heads, [
      [make("b", {}, upper(entry.device)), " ", make("small", {}, about)],
      withHalf(entry.latency_seconds, seconds),
      [energyOf(model.energy, entry.joules), model.energy === "net" && entry.gross_joules !== null && energyOf("gross", entry.gross_joules)].filter(Boolean),
      entry.gpu_ratio === null ? NOTHING : percent(entry.gpu_ratio.value),
      entry.gpu_freed === null ? NOTHING : points(entry.gpu_freed.value),
      entry.dla === null ? NOTHING : `${DLA_USES[entry.dla[0]]} ${percent(entry.dla[1])}`,
    ].slice(0, heads.length));
  });
  const made = table("", heads, []);
  made.caption.remove();
  made.setAttribute("aria-label", `${nameOf(model.model)} by device`);
  made.querySelector("tbody").append(...rows);
  const title = [nameOf(model.model), model.batch > 1 && `batch ${model.batch}`].filter(Boolean).join(", ");
  const said = model.verdicts
    .filter(({ answer }) => wait === null || answer !== "too_few_runs")
    .map(({ goal, better, sentence }) =>
      make("li", { class: better === null ? "even" : better === "gpu" ? "gpu" : "dla" },
        make("b", {}, TITLES[goal] ?? KINDS[model.energy]), " ", make("span", {}, sentence)),
    );
  const has = (kind) => places.some((device) => device.startsWith(kind));
  const other = has("dla") && !has("gpu") ? "gpu" : has("gpu") && !has("dla") ? "dla0" : null;
  if (other && hasDla && wait === null) said.push(make("li", { class: "even" }, `Nothing to compare with: no good run on ${upper(other)}.`));
  const flags = [...new Set(model.entries.flatMap((entry) => Object.keys(entry.flags)))];
  return make(
    "article",
    { class: "card", "aria-label": title },
    make("h3", { title: model.model }, title),
    model.conclusion === null ? null : make("p", { class: "conclusion" }, model.conclusion),
    model.conclusion === null && wait !== null ? make("p", { class: "conclusion even" }, EXPECTED) : null,
    wait === null ? null : make("p", { class: "under" }, wait),
    said.length > 0 ? make("ul", { class: "verdicts" }, ...said) : null,
    model.entries.length > 0 ? made : null,
    model.left_out > 0 ? make("p", { class: "under" }, `${model.left_out} runs in another power mode or clock setting are left out.`) : null,
    flags.length > 0 ? make("p", { class: "under" }, "Reasons for doubt") : null,
    flags.length > 0 ? make("dl", {}, ...flags.flatMap((flag) => doubt(flag, model.entries))) : null,
  );
}
