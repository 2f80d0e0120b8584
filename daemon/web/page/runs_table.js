// The table of runs, newest first.

import { runUrl } from "./api.js";
import { make, marks, row, table } from "./dom.js";
import { count, duration, joules, moment, NOTHING, perUnit, rate, seconds } from "./words.js";

const HEADS = ["workload", "device", "started", "outcome", "inferences", "p50", "p99", "rate", "gross energy per inference", "flags"];

export class RunsTable {
  constructor(place) {
    this.table = table("Runs, newest first", HEADS, []);
    this.body = this.table.querySelector("tbody");
    this.empty = make("p", { class: "empty" }, "No run yet.");
    place.replaceChildren(this.table, this.empty);
  }

  /** Show runs, at most so many; who has the focus in a row keeps it. A simulation is told once. */
  render(inFlight, finished, most, isSimulated, isGone) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.href : null;
    this.body.replaceChildren(
      ...inFlight.map((run) => line(run, true, isSimulated, isGone)),
      ...finished.slice(0, most).map((run) => line(run, false, isSimulated)),
    );
    this.table.hidden = inFlight.length + finished.length === 0;
    this.empty.hidden = !this.table.hidden;
    if (focused !== null) [...this.body.querySelectorAll("a")].find((a) => a.href === focused)?.focus();
  }
}

function line(run, isInFlight, isSimulated, isGone = false) {
  const flags = run.quality.filter((flag) => flag !== "simulated" || !isSimulated);
  const link = make("a", { href: runUrl(run.run_id) }, run.workload);
  // What stands in the record of a run in flight is only for the case that nobody ends it.
  const outcome = isInFlight
    ? [isGone ? "not known" : "running"]
    : [run.outcome, ...(run.reason ? [make("small", {}, ` ${run.reason}`)] : [])];
  const took = isInFlight ? "" : ` for ${duration((run.ended_ns - run.started_ns) / 1e9)}`;
  return row(
    HEADS,
    [
      link,
      run.device,
      [moment(run.started_seconds), make("small", {}, took)],
      outcome,
      isInFlight ? NOTHING : count(run.inferences),
      seconds(run.p50_seconds),
      seconds(run.p99_seconds),
      rate(run.throughput_per_second),
      [joules(run.gross_joules_per_inference), make("small", {}, perUnit(run))],
      flags.length > 0 ? [...marks(flags), make("small", {}, (run.foreign_dla_processes ?? []).join(", "))] : NOTHING,
    ],
    { class: `run ${isInFlight ? (isGone ? "unknown" : "running") : run.outcome}` },
  );
}
