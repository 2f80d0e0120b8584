// The page of one run: its timeline, latency, energy and placement, as its record has them.

import { ask, urlOf } from "./api.js";
import { Charts } from "./charts.js";
import { make, say, tell } from "./dom.js";
import { bandOf, bandOfRow } from "./lanes.js";
import { completed, flags, sectionsOf, summaryOf } from "./run_sections.js";
import { Series } from "./series.js";
import { moment } from "./words.js";

const AGAIN_MS = 2000;
const AROUND_SECONDS = 3;

const at = (id) => document.getElementById(id);
const id = location.pathname.split("/").at(-1);

/** Show what is known of the run, and tell whether that is all there will be. */
async function show() {
  const near = await ask("api/v1/summaries", { limit: 1 });
  const running = near.in_flight.find((run) => run.run_id === id);
  if (running !== undefined) {
    say(at("title"), running.workload);
    const words = `Running on ${running.device} since ${moment(running.started_seconds)}: its record comes when it ends.`;
    say(at("under"), words);
    at("simulated").hidden = !running.simulated;
    return false;
  }
  // The record fills every section but one.
  const text = ask(`api/v1/runs/${id}/text`).catch(() => ({ rows: [] }));
  const record = await ask(`api/v1/runs/${id}`);
  const report = completed({ ...record, text: (await text).rows });
  head(report);
  const charts = make("div", { id: "charts" });
  const cursor = make("output", { id: "cursor" });
  const timeline = make(
    "section",
    { "aria-labelledby": "timeline" },
    make("div", { class: "bar" }, make("h2", { id: "timeline" }, "Timeline"), cursor),
    charts,
  );
  const sections = [flags(report), ...sectionsOf(report)];
  // The figures answer most questions; the charts would push them off the first screen.
  const figures = sections.findIndex((one) => one?.querySelector("#figures"));
  sections.splice(figures + 1, 0, timeline);
  at("sections").replaceChildren(...sections.filter((one) => one !== null));
  await drawTimeline(report, new Charts(charts, cursor), near.in_flight);
  return true;
}

function head(report) {
  const simulated = report.environment.simulated || report.quality.includes("simulated");
  document.title = `${simulated ? "simulated · " : ""}${report.workload} on ${report.device} · tegrascope`;
  say(at("title"), `${report.workload} on ${report.device}`);
  say(at("under"), summaryOf(report, simulated));
  at("simulated").hidden = !simulated;
  tell(at("outcome"), report.outcome === "ok" ? "" : `${report.outcome}: ${report.reason}`);
  at("json").replaceChildren(make("a", { href: urlOf(`api/v1/runs/${report.run_id}`) }, "This run as JSON"));
}

async function drawTimeline(report, charts, inFlight) {
  const started = report.started_wall_ns / 1e9;
  const begin = started - AROUND_SECONDS;
  const end = started + (report.ended_ns - report.started_ns) / 1e9 + AROUND_SECONDS;
  const step = Math.max(0.1, Number(((end - begin) / 450).toPrecision(2)));
  const [status, answer, near] = await Promise.all([
    ask("api/v1/status"),
    ask("api/v1/series", { since: begin, until: end, step }),
    ask("api/v1/bands", { since: begin, before: end }),
  ]);
  // A workload has one colour on all pages.
  charts.lanes.learn(status.workloads.map((one) => one.workload));
  const series = new Series();
  series.totalRails = report.energy?.total_rails ?? [];
  series.take(answer);
  const own = { ...report, started_seconds: started, steady: report.phases.steady };
  const others = near.bands.map(bandOfRow).filter((band) => band.id !== report.run_id);
  const running = inFlight.map((run) => bandOf(run, true, Math.max(end, run.started_seconds)));
  const bands = [bandOf(own, false, end), ...others, ...running];
  const { steadyBegin, steadyEnd } = bands[0];
  const means = steadyBegin === null ? null : [steadyBegin, steadyEnd];
  const without = report.device.startsWith("dla") ? null : "dla";
  charts.render(series, { begin, end, now: end, bands, since: Math.min(near.since, end), lit: report.run_id, means, without });
}

/** Show the record as soon as there is one: a run may wait for its turn, and a daemon may start anew. */
async function untilShown() {
  let isShown = false;
  if (!document.hidden) {
    try {
      isShown = await show();
      tell(at("trouble"), "");
    } catch (error) {
      tell(at("trouble"), `${error.message}; trying again.`);
      if (at("sections").childElementCount === 0) say(at("under"), "");
    }
  }
  if (!isShown) setTimeout(untilShown, AGAIN_MS);
}

untilShown();
