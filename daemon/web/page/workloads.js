// A row per workload: what it does now, its last good run, its failures, and when it is due.

import { urlOf } from "./api.js";
import { make, row, say, table } from "./dom.js";
import { ago, count, duration, joules, NOTHING, perUnit, seconds } from "./words.js";

const HEADS = ["workload", "device", "state", "last good run", "median", "energy each", "failures in a row", "missed deadlines", "next due"];

export class Workloads {
  constructor(section, place, output) {
    Object.assign(this, { section, place, output, words: "", key: null, rows: new Map() });
    this.table = table("Workloads", HEADS, []);
    this.table.caption.remove();
    this.table.setAttribute("aria-label", "Workloads");
    place.replaceChildren(this.table);
  }

  /** Show the present state, or none of a daemon that is gone; a row that is there stays the same element. */
  take(status, runs, time = status.time, isGone = false) {
    // After a restart the daemon has no good run yet, but its store may.
    const workloads = status.workloads
      .map((one) => ({ ...one, ...(isGone && { isGone, due: null }), last_good: one.last_good ?? goodOf(one, runs) }))
      .sort((a, b) => (b.failures > 0) - (a.failures > 0));
    this.section.hidden = workloads.length === 0;
    const key = JSON.stringify(workloads.map((one) => ({ ...one, due: null, inferences: null })));
    if (key !== this.key) {
      this.key = key;
      const body = this.table.querySelector("tbody");
      const focused = body.contains(document.activeElement) ? document.activeElement.href : null;
      this.rows = new Map(workloads.map((one) => [one.workload, line(one)]));
      body.replaceChildren(...this.rows.values());
      if (focused !== null) [...body.querySelectorAll("a")].find((a) => a.href === focused)?.focus();
      this.filter(this.words);
    }
    for (const one of workloads) {
      const cells = this.rows.get(one.workload).children;
      if (one.last_good) say(cells[3].firstChild, ago(time - one.last_good.ended));
      const wait = one.due === null ? NOTHING : one.due <= time ? "now" : `in ${duration(one.due - time, 0)}`;
      say(cells[8], wait);
    }
    // A short table needs no stop of the keyboard to scroll it.
    const isTall = this.place.scrollHeight > this.place.clientHeight + 1;
    if (isTall) this.place.tabIndex = 0;
    else this.place.removeAttribute("tabindex");
  }

  /** Show only rows that contain these words. */
  filter(words) {
    this.words = words;
    let shown = 0;
    for (const one of this.rows.values()) {
      one.hidden = !one.textContent.toLowerCase().includes(words);
      shown += one.hidden ? 0 : 1;
    }
    say(this.output, words && `${shown} of ${this.rows.size} workloads`);
  }
}

/** Return the newest good run of a workload in the table of runs. */
function goodOf({ workload, device }, runs) {
  const run = runs.find((one) => one.workload === workload && one.device === device && one.outcome === "ok");
  return run ? { ...run, ended: run.started_seconds + (run.ended_ns - run.started_ns) / 1e9 } : null;
}

function line(one) {
  const good = one.last_good;
  const state = one.isGone ? "not known" : one.active_run ? "running" : one.failures > 0 ? "failing" : good ? "good" : one.runs.skipped ? "skipped" : "no run yet";
  const href = good && urlOf(`runs/${good.run_id}`);
  return row(
    HEADS,
    [
      one.workload,
      one.device,
      state,
      good ? [make("a", { href }, "")] : "none yet",
      seconds(good?.p50_seconds),
      [joules(good?.net_joules_per_inference ?? good?.gross_joules_per_inference), make("small", {}, perUnit(good))],
      String(one.failures),
      one.deadline_seconds === null ? NOTHING : `${count(one.misses)} beyond ${seconds(one.deadline_seconds)}`,
      "",
    ],
    { class: `state ${state.split(" ")[0]}` },
  );
}
