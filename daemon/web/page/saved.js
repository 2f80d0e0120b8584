// A page that is kept as a file: charts and runs from the JSON inside it, and no daemon to ask.

import { Charts } from "./charts.js";
import { make } from "./dom.js";
import { drawFront } from "./front.js";
import { bandOfRow } from "./lanes.js";
import { completed, flags, sectionsOf, summaryOf } from "./run_sections.js";
import { Series } from "./series.js";

const RUN_HASH = "#run-";
const saved = JSON.parse(document.getElementById("saved").textContent);

/** Draw the telemetry with the runs. */
function drawTimeline(place, { series: answer, bands: rows, begin, end, total_rails: totalRails }) {
  const charts = make("div", { id: "charts" });
  const cursor = make("output", { id: "cursor" });
  place.append(make("div", { class: "bar" }, cursor), charts);
  const series = new Series();
  series.totalRails = totalRails;
  series.take(answer);
  const bands = rows.map(bandOfRow);
  const lit = bands.length === 1 ? bands[0].id : null;
  new Charts(charts, cursor).render(series, { begin, end, now: end, bands, lit, without: "dla" });
}

/** Return the id of the run that the address names, or null. */
function askedRun() {
  const { hash } = location;
  return hash.startsWith(RUN_HASH) ? decodeURIComponent(hash.slice(RUN_HASH.length)) : null;
}

/** Show the run that the address names, or the only one there is. */
function showRun() {
  const place = document.getElementById("run");
  if (place === null) return;
  const asked = askedRun();
  if (asked === null) {
    if (saved.runs.length === 1) place.replaceChildren(...partsOf(completed(saved.runs[0])));
    return;
  }
  const record = saved.runs.find((run) => run.run_id === asked);
  place.replaceChildren(...(record === undefined ? [missing(asked)] : partsOf(completed(record))));
  // A reader who chose it by keyboard or by ear goes on there.
  document.getElementById("run-title")?.focus();
}

function partsOf(report) {
  const isSimulated = report.environment.simulated || report.quality.includes("simulated");
  const summary = `${report.workload} on ${report.device} · ${summaryOf(report, isSimulated)}`;
  const parts = [
    make("h2", { id: "run-title", tabindex: "-1" }, `Run ${report.run_id}`),
    make("p", { class: "under" }, summary),
  ];
  if (report.outcome !== "ok") {
    parts.push(make("p", { class: "notice bad" }, `${report.outcome}: ${report.reason}`));
  }
  const marks = flags(report);
  if (marks !== null) parts.push(marks);
  return [...parts, ...sectionsOf(report)];
}

function missing(id) {
  return make("p", { class: "empty" }, `The whole record of ${id} is not on this page: tegrascope report --run ${id}`);
}

for (const place of document.querySelectorAll(".front")) {
  place.append(drawFront(JSON.parse(place.firstElementChild.textContent)));
}
const timeline = document.getElementById("timeline");
if (timeline !== null) drawTimeline(timeline, saved.timeline);
addEventListener("hashchange", showRun);
showRun();
