// The status page: asks once a second what is new, and shows the last minutes.

import { ask } from "./api.js";
import { heatLevel, lowLevel, powerLevel, processTable, tiles, vitals } from "./board_now.js";
import { Charts } from "./charts.js";
import { explained, make, say, tell } from "./dom.js";
import { bandOf, bandOfRow } from "./lanes.js";
import { Models } from "./models.js";
import { RunsTable } from "./runs_table.js";
import { MODULE, Series } from "./series.js";
import { Troubles } from "./troubles.js";
import { bytes, clock, count, digits, duration, zone } from "./words.js";
import { Workloads } from "./workloads.js";

const EVERY_MS = 1000;
const MOST_WAIT_MS = 30_000;
const RUNS_EVERY_SECONDS = 30;
const PAGE_RUNS = 50;
const LEAST_SECONDS = 30;
// A span and the step that gives it about 450 points.
const STEPS = { 60: 0.2, 300: 1, 900: 2 };
const LONGEST = 900;
const LOW_ROOM_BYTES = 100 * 2 ** 20;

const at = (id) => document.getElementById(id);
const charts = new Charts(at("charts"), at("cursor"));
const runsTable = new RunsTable(at("runs"));
const models = new Models(at("models-section"), at("models"), at("more-models"));
const workloads = new Workloads(at("workloads-section"), at("workloads"), at("filtered"), at("more-workloads"));
const troubles = new Troubles(at("troubles"), at("as-of"));
const series = new Series();
const isNarrow = matchMedia("(max-width: 48rem)");
let span = 900;
let isPaused = false;
let last = null;
let failures = 0;
let isGone = false;
let runs = { in_flight: [], runs: [] };
let compared = [];
let older = [];
let isAllShown = false;
let mostShown = null;
let runsOf = { key: null, time: -Infinity, again: 0 };
// Finished runs of the time shown, and since when all of them are known.
const bands = new Map();
let bandsSince = -Infinity;
let bandsUntil = null;

async function tick() {
  const status = await ask("api/v1/status");
  last = { status, at: Date.now() / 1000 };
  if (isGone) runsOf.time = -Infinity;
  isGone = false;
  showStatus(status);
  if (isPaused) return;
  series.totalRails = status.total_rails;
  // One after the other: two at a time would cost the daemon twice the memory.
  try {
    await catchUp(status.time);
    await lookAtRuns(status);
  } finally {
    showCharts(status, status.time); // what is known, also where the store is not there
  }
}

function showCharts(status, now) {
  const shown = [
    ...runs.in_flight.map((run) => bandOf(run, true, status.time)),
    ...[...bands.values()].filter((band) => band.end >= now - span),
  ];
  // Where the daemon has just begun there is no past to show.
  const first = Math.min(series.rows[0]?.time ?? now, ...shown.map((band) => band.begin));
  const begin = Math.max(now - span, Math.min(first, now - LEAST_SECONDS));
  charts.lanes.learn(status.workloads.map((one) => one.workload));
  charts.render(series, {
    begin, end: now, now, bands: shown, isLive: true,
    since: Math.max(bandsSince, begin), marks: marksOf(status), levels: levelsOf(status),
    without: status.board.dla_cores === 0 ? "dla" : null,
  });
  const words = { 60: "1 min", 300: "5 min", 900: "15 min" }[span];
  const made = tiles(status, series.risen().map((one) => ({ ...one, last: now - one.last })), words);
  // A figure that is bad is not folded away.
  at("danger").replaceChildren(...made.filter((one) => one.className));
  at("now").replaceChildren(...made.filter((one) => !one.className));
}

/** Return the limits that charts show. */
function marksOf({ limits, trips }) {
  const trip = Math.min(...Object.values(trips));
  return {
    power: limits.power_watts ? [{ value: limits.power_watts, label: "budget", level: "bad", near: 0.5 }] : [],
    temperature: Number.isFinite(trip) ? [{ value: trip, label: "shutdown", level: "bad", near: 0.75 }] : [],
  };
}

/** Return whether a value of a line is near its limit. */
function levelsOf({ limits, trips, now }) {
  const total = now.ram_total[""];
  return (name, value) => {
    const [kind, label] = name.split(/\/(.*)/);
    if (kind === "celsius" && label in trips) return heatLevel(trips[label] - value);
    if (name === MODULE) return powerLevel(value, limits.power_watts);
    return name === "bytes/available" && total ? lowLevel(value / total) : "";
  };
}

/** Ask for the steps since the newest one; for all where there is none, or the clock was set. */
async function catchUp(now) {
  const isStale = series.end === null || series.end > now + series.gap || series.end < now - span;
  if (isStale) series.clear();
  const step = STEPS[span];
  const since = series.end ?? now - span;
  const asked = span;
  const answer = await ask("api/v1/series", { since, step });
  if (asked !== span) return; // another span was chosen meanwhile
  series.take(answer);
  series.dropBefore(now - span);
}

/** Ask for runs where one began or ended, and now and then. */
async function lookAtRuns(status) {
  const { time } = status;
  const key = JSON.stringify(status.workloads.map((one) => [one.active_run, one.runs]));
  // A run is counted a moment before it is stored, so it is looked for twice.
  if (key !== runsOf.key) runsOf.again = 2;
  if (runsOf.again === 0 && time - runsOf.time < RUNS_EVERY_SECONDS) return;
  runsOf = { key, time, again: Math.max(0, runsOf.again - 1) };
  runs = await ask("api/v1/summaries", { limit: PAGE_RUNS });
  await lookAtBands(time);
  compared = (await ask("api/v1/models")).models;
  showRuns();
}

/** Ask for the runs that ended since the last answer; for all of the longest span at first. */
async function lookAtBands(now) {
  const isFirst = bandsUntil === null || bandsUntil > now;
  const since = isFirst ? now - LONGEST : bandsUntil - 10;
  const answer = await ask("api/v1/bands", { since });
  if (isFirst) bands.clear();
  if (isFirst || answer.since > since) bandsSince = answer.since;
  for (const row of answer.bands) bands.set(row[0], bandOfRow(row));
  for (const [id, band] of bands) if (band.end < now - LONGEST) bands.delete(id);
  bandsUntil = now;
}

function showRuns() {
  const words = at("filter").value.trim().toLowerCase();
  const newest = new Set(runs.runs.map((run) => run.run_id));
  older = older.filter((run) => !newest.has(run.run_id));
  const isWanted = (run) =>
    `${run.workload} ${run.device} ${run.outcome ?? "running"}`.toLowerCase().includes(words);
  const finished = [...runs.runs, ...older].filter(isWanted);
  const most = mostShown ?? (isNarrow.matches ? 6 : 15);
  const inFlight = runs.in_flight.filter(isWanted);
  runsTable.render(inFlight, finished, most, last?.status.simulated, isGone);
  at("older").hidden = finished.length <= most && (isAllShown || runs.runs.length < PAGE_RUNS);
  const flags = [...new Set([...inFlight, ...finished.slice(0, most)].flatMap((run) => run.quality))]
    .filter((flag) => flag !== "simulated" || !last?.status.simulated);
  at("meanings").replaceChildren(...explained(flags));
}

async function showOlder() {
  const known = [...runs.runs, ...older];
  const wasShort = mostShown === null && known.length > (isNarrow.matches ? 6 : 15);
  mostShown = Infinity;
  if (!wasShort) {
    const answer = await ask("api/v1/summaries", { limit: PAGE_RUNS, before: known.at(-1).started_seconds });
    const ids = new Set(known.map((run) => run.run_id));
    older.push(...answer.runs.filter((run) => !ids.has(run.run_id)));
    isAllShown = answer.runs.length < PAGE_RUNS;
  }
  showRuns();
}

function title(status, words = "") {
  const { board, simulated, troubles, problem } = status;
  const worst = problem || troubles.some((one) => one.severity === "critical") ? "⚠ " : "";
  document.title = `${words}${words ? "" : worst}${simulated ? "simulated · " : ""}${board.name ?? "tegrascope"} · tegrascope`;
}

function showStatus(status) {
  const { board } = status;
  const facts = [
    board.name ?? "board not known yet",
    board.module,
    board.l4t && `L4T ${board.l4t}`,
    board.jetpack && `JetPack ${board.jetpack}`,
    board.power_mode && `power mode ${board.power_mode}`,
    board.clocks_locked && "clocks locked",
    status.simulated && "simulated",
  ];
  say(at("board"), facts.filter(Boolean).join(" · "));
  at("simulated").hidden = !status.simulated;
  tell(at("trouble"), status.problem && `Not ready: ${status.problem}`);
  tell(at("note"), status.note);
  say(at("version"), ` · tegrascope ${status.version} · times are ${zone()}, as in this browser`);
  const pages = status.compatibility.map((tool) => make("a", { href: `metrics/${tool}` }, tool));
  at("tools").replaceChildren(...pages.flatMap((page) => [", ", page]));
  troubles.show(status.troubles);
  at("vitals").replaceChildren(...vitals(status));
  title(status);
  workloads.take(status, runs.runs);
  models.take(compared, status);
  const processes = processTable(status);
  at("processes-section").hidden = processes === null;
  at("processes").replaceChildren(processes ?? "");
  at("health").replaceChildren(...healthOf(status));
}

function healthOf({ sources, companions, store, skipped }) {
  const of = (counts) => Object.entries(counts).map(([name, number]) => `${number} ${name}`).join(", ");
  const lines = sources.map((source) =>
    health(source.name, source.up, [
      source.interval_seconds && `every ${digits(source.interval_seconds)} s`,
      `${count(source.samples)} samples`,
      !source.up && source.age_seconds !== null && `the last ${duration(source.age_seconds)} ago`,
      source.restarts > 0 && `${source.restarts} restarts`,
      source.lines_unparsed > 0 && `${count(source.lines_unparsed)} lines not read`,
      source.tokens_unparsed > 0 && `${count(source.tokens_unparsed)} words not understood`,
    ]),
  );
  for (const [name, up] of Object.entries(companions)) lines.push(health(name, up, []));
  const room = store.free_bytes;
  const level = room === 0 ? "bad" : room < LOW_ROOM_BYTES ? "warn" : null;
  lines.push(
    health("store", store.problem === null && room !== 0, [
      store.problem,
      store.write_errors > 0 && `${store.write_errors} failed writes`,
      room !== null && make("span", { class: level }, `${bytes(room)} free`),
    ]),
  );
  if (of(skipped)) lines.push(make("li", {}, make("b", {}, "runs skipped"), ` ${of(skipped)}`));
  return lines;
}

/** Return one line; a state that is null is not known. */
function health(name, isUp, words) {
  const said = isUp === null ? "not known" : isUp ? "up" : "down";
  const state = make("span", { class: isUp === null ? "empty" : said }, said);
  const parts = words.filter(Boolean).flatMap((one, index) => (index ? [" · ", one] : [" ", one]));
  return make("li", {}, make("b", {}, name), " ", state, ...parts);
}

async function guarded(work) {
  try {
    await work();
    failures = 0;
  } catch (error) {
    failures = error.isAnswer ? 0 : failures + 1;
    if (!error.isAnswer) showSilence(error.message);
    else if (at("trouble").hidden) tell(at("trouble"), error.message);
  }
}

/** Say that the daemon does not answer: what was is not told as what is. */
function showSilence(reason) {
  const wait = Math.round(waitMs() / 1000);
  const since = last === null ? "" : ` since ${clock(last.at)}; what is shown is of that time`;
  tell(at("trouble"), `The daemon does not answer (${reason})${since}. Asking again every ${wait} s.`);
  if (last === null) return;
  const wasGone = isGone;
  isGone = true;
  title(last.status, "no answer · ");
  const { sources, companions, store } = last.status;
  const names = [...sources.map((one) => one.name), ...Object.keys(companions)];
  const lines = [...names, ...(store ? ["store"] : [])].map((name) => health(name, null, []));
  at("health").replaceChildren(...lines);
  const now = last.status.time + Date.now() / 1000 - last.at;
  if (!isPaused) showCharts(last.status, now);
  at("now").replaceChildren();
  at("danger").replaceChildren();
  at("vitals").replaceChildren();
  troubles.show(last.status.troubles, last.at);
  workloads.take(last.status, runs.runs, now, true);
  if (!wasGone) showRuns();
}

const waitMs = () => Math.min(EVERY_MS * 2 ** Math.max(failures - 1, 0), MOST_WAIT_MS);

async function forEver() {
  if (!document.hidden) await guarded(tick);
  setTimeout(forEver, failures ? waitMs() : EVERY_MS);
}

at("spans").addEventListener("change", (event) => {
  span = Number(event.target.value);
  series.clear();
  if (isPaused) at("pause").click();
});
at("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  say(at("pause"), isPaused ? "Go on" : "Pause");
});
at("filter").addEventListener("input", (event) => {
  const words = event.target.value.trim().toLowerCase();
  workloads.filter(words);
  models.filter(words);
  showRuns();
});
at("older").addEventListener("click", () => guarded(showOlder));
isNarrow.addEventListener("change", showRuns);
forEver();
