// A card per model: the figures of its last good runs by device, and which device is better.

import { make, marks, row, say, table } from "./dom.js";
import { digits, joules, NOTHING, percent, seconds, SPACE } from "./words.js";

const SHOWN = matchMedia("(max-width: 48rem)").matches ? 2 : 4;
const DLA_USES = {
  powered: "powered", gate: "on", ftrace: "busy", tegrastats: "busy", firmware: "busy when asked",
};

/** Return the name of a model without its directory and its end. */
export function nameOf(model) {
  return model.replace(/^builtin:/, "").split("/").at(-1).replace(/\.\w+$/, "");
}

const upper = (device) => device.toUpperCase();
const points = (ratio) => `${digits(100 * ratio)}${SPACE}points`;

/** Print a mean with the longer half of its interval in percent. */
function withHalf(figure, show) {
  if (figure === null) return NOTHING;
  if (figure.low === null || figure.value === 0) return show(figure.value);
  const longer = Math.max(figure.high - figure.value, figure.value - figure.low);
  const half = (100 * longer) / Math.abs(figure.value);
  return `${show(figure.value)} ±${SPACE}${digits(half, 2)}${SPACE}%`;
}

const GOALS = {
  latency: {
    title: "Speed",
    show: seconds,
    verb: "is",
    fewer: "faster",
    more: "slower",
    better: (device, factor) =>
      factor < 1.5 ? `${device} takes ${digits(100 * (1 - 1 / factor), 2)} % less time` : `${device} is ${digits(factor, 2)} times faster`,
  },
  energy: {
    title: "Energy",
    show: joules,
    verb: "takes",
    fewer: "less",
    more: "more",
    better: (device, factor) => `${device} takes ${digits(100 * (1 - 1 / factor), 2)} % less per inference`,
  },
  gpu: { title: "GPU freed", show: points, better: null, verb: "frees", fewer: "", more: "added" },
};

/** Return a verdict in words. */
export function sentence(verdict) {
  const { goal, answer, better, less_on_dla: less } = verdict;
  const { show, better: words, verb, fewer, more } = GOALS[goal];
  if (answer === "too_few_runs") return `${verdict.runs} of ${verdict.runs_needed} runs on each device`;
  if (answer === "not_known") return "not known yet: the runs differ too much from each other";
  // Below zero it is more on the DLA.
  const end = (value) => `${show(Math.abs(value))} ${value < 0 ? more : fewer}`;
  const range = `${end(less.high)} to ${end(less.low)}`;
  if (better === null) return `no difference shown: the DLA ${verb} ${range}`;
  if (words === null) {
    return `${better === "gpu" ? "none: the DLA adds" : `${upper(better)} frees`} ${show(Math.abs(less.value))} of GPU load`;
  }
  const [worse, best] = better === "gpu" ? [verdict.dla_value, verdict.gpu_value] : [verdict.gpu_value, verdict.dla_value];
  // Net energy may be about nothing; then no share of it means anything.
  if (best <= 0) return `${upper(better)} takes less: the DLA ${verb} ${range}`;
  return words(upper(better), worse / best);
}

/** Return what all verdicts of a model say together, in a sentence; null while none is decided. */
export function conclusion({ verdicts, energy }) {
  const words = { latency: "is faster", energy: `takes less ${energy} energy per inference`, gpu: "frees the GPU" };
  const facts = { gpu: [], dla: [] };
  for (const { goal, better } of verdicts) {
    if (better === null || (goal === "gpu" && better === "gpu")) continue;
    facts[better === "gpu" ? "gpu" : "dla"].push(words[goal]);
  }
  const parts = Object.entries(facts).filter(([, said]) => said.length > 0);
  const sentences = parts.map(([device, said]) => {
    const last = said.pop();
    return `the ${device.toUpperCase()} ${said.length > 0 ? `${said.join(", ")} and ` : ""}${last}`;
  });
  if (sentences.length === 0) return null;
  const whole = sentences.join("; ");
  return `${whole[0].toUpperCase()}${whole.slice(1)}.`;
}

export class Models {
  constructor(section, place, more) {
    Object.assign(this, { section, place, more, models: [], words: "", isAll: false });
    more.addEventListener("click", () => {
      this.isAll = true;
      this.#show();
    });
  }

  /** Show models; a board without a DLA gets no words about one. */
  take(models, dlaCores) {
    this.models = models;
    this.hasDla = dlaCores !== 0 || models.some((one) => one.entries.some((entry) => entry.device.startsWith("dla")));
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
    this.section.hidden = this.models.length === 0;
    this.place.replaceChildren(...shown.map((one) => card(one, this.hasDla)));
    this.more.hidden = shown.length === found.length;
    say(this.more, `Show all ${found.length} models`);
  }
}

function card(model, hasDla) {
  const heads = ["device", "median latency", `${model.energy} energy each`, "GPU load", ...(hasDla ? ["GPU freed", "own DLA core"] : [])];
  const places = model.entries.map((entry) => entry.device);
  const rows = model.entries.map((entry) => {
    const isTwice = places.indexOf(entry.device) !== places.lastIndexOf(entry.device);
    const flags = Object.entries(entry.flags).map(([flag, runs]) => `${flag} ${runs}/${entry.runs}`);
    const precision = entry.precision ? ` ${entry.precision}` : "";
    const about = `${precision} ${isTwice ? `${entry.workload}, ` : ""}${entry.runs} run${entry.runs > 1 ? "s" : ""}`;
    return row(heads, [
      [make("b", {}, upper(entry.device)), make("small", {}, about)],
      withHalf(entry.latency_seconds, seconds),
      entry.joules === null ? [make("small", {}, "withheld")] : withHalf(entry.joules, joules),
      entry.gpu_ratio === null ? NOTHING : percent(entry.gpu_ratio.value),
      entry.gpu_freed === null ? NOTHING : points(entry.gpu_freed.value),
      entry.dla === null ? NOTHING : `${DLA_USES[entry.dla[0]]} ${percent(entry.dla[1])}`,
    ].slice(0, heads.length), flags.length > 0 ? { title: flags.join(", ") } : {});
  });
  const made = table("", heads, []);
  made.caption.remove();
  made.setAttribute("aria-label", `${nameOf(model.model)} by device`);
  made.querySelector("tbody").append(...rows);
  const title = [nameOf(model.model), model.batch > 1 && `batch ${model.batch}`].filter(Boolean).join(", ");
  const said = model.verdicts.map((verdict) =>
    make("li", { class: verdict.better === null ? "even" : verdict.better === "gpu" ? "gpu" : "dla" },
      make("b", {}, GOALS[verdict.goal].title), " ", make("span", {}, sentence(verdict))),
  );
  const concluded = conclusion(model);
  const has = (kind) => places.some((device) => device.startsWith(kind));
  const other = has("dla") && !has("gpu") ? "gpu" : has("gpu") && !has("dla") ? "dla0" : null;
  if (other && hasDla) said.push(make("li", { class: "even" }, `Nothing to compare with: no good run on ${upper(other)}.`));
  const flags = [...new Set(model.entries.flatMap((entry) => Object.keys(entry.flags)))];
  return make(
    "article",
    { class: "card", "aria-label": title },
    make("h3", { title: model.model }, title),
    concluded === null ? null : make("p", { class: "conclusion" }, concluded),
    make("ul", { class: "verdicts" }, ...said),
    made,
    model.left_out > 0 ? make("p", { class: "under" }, `${model.left_out} runs in another power mode or clock setting are left out.`) : null,
    flags.length > 0 ? make("p", { class: "flags" }, ...marks(flags)) : null,
  );
}
