// A page that is kept as a file: charts and runs from the JSON inside it, and no daemon to ask.

import { Charts } from "./charts.js";
import { make, tell } from "./dom.js";
import { drawFront } from "./front.js";
import { bandOfRow } from "./lanes.js";
import { completed, flags, sectionsOf, summaryOf } from "./run_sections.js";
import { Series } from "./series.js";

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

/** Show the run that the address names, or the only one there is. */
function showRun() {
  const place = document.getElementById("run");
  const asked = location.hash.startsWith("#run-") ? decodeURIComponent(location.hash.slice(5)) : null;
  if (place === null) return;
  const record = saved.runs.find((run) => run.run_id === asked) ?? (saved.runs.length === 1 ? saved.runs[0] : null);
  if (record === null) {
    place.replaceChildren(...(asked === null ? [] : [missing(asked)]));
    return;
  }
  const report = completed(record);
  const isSimulated = report.environment.simulated || report.quality.includes("simulated");
  const outcome = make("p", { class: "notice bad" });
  tell(outcome, report.outcome === "ok" ? "" : `${report.outcome}: ${report.reason}`);
  const sections = [flags(report), ...sectionsOf(report)].filter((one) => one !== null);
  const title = make("h2", { id: "run-title", tabindex: "-1" }, `Run ${report.run_id}`);
  place.replaceChildren(title, make("p", { class: "under" }, `${report.workload} on ${report.device} · ${summaryOf(report, isSimulated)}`), outcome, ...sections);
  if (asked !== null) title.focus();
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
