// A row per workload: what it does now, its last good run, its failures, and when it is due.

import { urlOf } from "./api.js";
import { make, marks, row, say, table } from "./dom.js";
import { ago, count, duration, joules, NOTHING, perUnit, seconds } from "./words.js";

const HEADS = ["workload", "device", "state", "last good run", "median", "energy per inference", "failures in a row", "missed deadlines", "next due"];

// More rows push the charts away; those that fail come first.
const SHOWN = 10;

export class Workloads {
  constructor(section, place, output, more) {
    Object.assign(this, { section, place, output, more, words: "", isAll: false, all: [], key: null, rows: new Map() });
    more.addEventListener("click", () => {
      this.isAll = true;
      this.#show();
    });
    this.table = table("Workloads", HEADS, []);
    this.table.caption.remove();
    this.table.setAttribute("aria-label", "Workloads");
    place.replaceChildren(this.table);
  }

  /** Show the present state, or none of a daemon that is gone; failing ones come first. */
  take(status, runs, time = status.time, isGone = false) {
    // After a restart the daemon has no good run yet, but its store may.
    this.all = status.workloads
      .map((one) => ({ ...one, ...(isGone && { isGone, due: null }), last_good: one.last_good ?? goodOf(one, runs) }))
      .sort((a, b) => (b.failures > 0) - (a.failures > 0));
    this.time = time;
    this.#show();
  }

  /** Show only workloads whose name, device or state contains these words. */
  filter(words) {
    this.words = words;
    this.#show();
  }

  #show() {
    const found = this.all.filter((one) => `${one.workload} ${one.device} ${stateOf(one)}`.toLowerCase().includes(this.words));
    const shown = this.isAll ? found : found.slice(0, SHOWN);
    this.section.hidden = this.all.length === 0;
    this.more.hidden = shown.length === found.length;
    say(this.more, `Show all ${found.length} workloads`);
    say(this.output, shown.length < this.all.length ? `${shown.length} of ${this.all.length} workloads` : "");
    const key = JSON.stringify(shown.map((one) => ({ ...one, due: null, inferences: null })));
    if (key !== this.key) {
      this.key = key;
      const body = this.table.querySelector("tbody");
      const focused = body.contains(document.activeElement) ? document.activeElement.href : null;
      this.rows = new Map(shown.map((one) => [one.workload, line(one)]));
      body.replaceChildren(...this.rows.values());
      if (focused !== null) [...body.querySelectorAll("a")].find((a) => a.href === focused)?.focus();
    }
    for (const one of shown) {
      const cells = this.rows.get(one.workload).children;
      if (one.last_good) say(cells[3].firstChild, ago(this.time - one.last_good.ended));
      const wait = one.due === null ? NOTHING : one.due <= this.time ? "now" : `in ${duration(one.due - this.time, 0)}`;
      say(cells[8], wait);
    }
  }
}

const IN_DOUBT = "good, figures in doubt";

/** Return the state of a workload; one that fails keeps failing while it tries again. */
function stateOf(one) {
  if (one.isGone) return "not known";
  if (one.failures > 0) return one.active_run ? "failing, runs again" : "failing";
  if (one.active_run) return "running";
  if (one.last_good) return one.last_good.quality?.length > 0 ? IN_DOUBT : "good";
  return one.runs.skipped ? "skipped" : "no run yet";
}

/** Return the newest good run of a workload in the table of runs. */
function goodOf({ workload, device }, runs) {
  const run = runs.find((one) => one.workload === workload && one.device === device && one.outcome === "ok");
  return run ? { ...run, ended: run.started_seconds + (run.ended_ns - run.started_ns) / 1e9 } : null;
}

/** Return net and gross energy per inference, as far as they are known. */
function energyOf(good) {
  const kinds = [["net", good?.net_joules_per_inference], ["gross", good?.gross_joules_per_inference]];
  const known = kinds.filter(([, value]) => (value ?? null) !== null);
  return known.map(([kind, value]) => `${joules(value)} ${kind}`).join(", ") || NOTHING;
}

function line(one) {
  const good = one.last_good;
  const state = stateOf(one);
  const href = good && urlOf(`runs/${good.run_id}`);
  return row(
    HEADS,
    [
      one.workload,
      one.device,
      state === IN_DOUBT ? [state, " ", ...marks(good.quality)] : state,
      good ? [make("a", { href }, "")] : "none yet",
      seconds(good?.p50_seconds),
      // Where an inference is one unit, its energy is not told twice.
      [energyOf(good), make("small", {}, good?.joules_per_unit === good?.gross_joules_per_inference ? "" : perUnit(good))],
      String(one.failures),
      one.deadline_seconds === null ? NOTHING : `${count(one.misses)} beyond ${seconds(one.deadline_seconds)}`,
      "",
    ],
    { class: `state ${state.split(/\W/)[0]}` },
  );
}
