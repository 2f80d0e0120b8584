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
import { bytes, clock, count, digits, duration, moment, zone } from "./words.js";
import { Workloads } from "./workloads.js";

const EVERY_MS = 1000;
const MOST_WAIT_MS = 30_000;
const RUNS_EVERY_SECONDS = 30;
const PAGE_RUNS = 50;
const LEAST_SECONDS = 30;
const POINTS = 450;
const SHORTEST = 10;
const LONGEST = 31 * 86_400;
// The past is asked for in parts: the daemon answers each of them within a second or two.
const PART_SECONDS = 3600;
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
let liveSpan = span;
let caughtUp = -Infinity;
// The end of the time shown, in seconds; null on a page that follows the present.
let until = null;
// What is known of a time that is over: series, bands, and since when all of these are known.
let past = null;
let asked = 0;
let drawn = { time: 0, begin: 0, span };
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
  if (until !== null) {
    if (past === null) await guarded(loadPast); // it began with a link
    await lookAtRuns(status);
    return;
  }
  series.totalRails = status.total_rails;
  // One after the other: two at a time would cost the daemon twice the memory.
  try {
    await catchUp(status.time);
    await lookAtRuns(status);
  } finally {
    showLive(status, status.time); // what is known, also where the store is not there
  }
}

function showLive(status, now) {
  const shown = [
    ...runs.in_flight.map((run) => bandOf(run, true, status.time)),
    ...[...bands.values()].filter((band) => band.end >= now - span),
  ];
  const made = tiles(status, series.risen().map((one) => ({ ...one, last: now - one.last })), duration(span, 0).replace(/ 0 \w+$/, ""));
  // A figure that is bad is not folded away.
  at("danger").replaceChildren(...made.filter((one) => one.className));
  at("now").replaceChildren(...made.filter((one) => !one.className));
  // A redraw that moves no line by a pixel costs as much as one that does.
  const isNew = drawn.span !== span || now < drawn.time || now - drawn.time >= (now - drawn.begin) / POINTS - EVERY_MS / 2000;
  if (!isNew && shown.length === drawn.bands) return;
  // Where the daemon has just begun there is no past to show.
  const first = Math.min(series.rows[0]?.time ?? now, ...shown.map((band) => band.begin));
  const begin = Math.max(now - span, Math.min(first, now - LEAST_SECONDS));
  drawn = { time: now, begin, span, bands: shown.length };
  say(at("range"), begin > now - span + 1 ? `recording began ${moment(first)}` : "");
  draw(status, series, shown, begin, now, now, Math.max(bandsSince, begin));
}

function draw(status, known, shown, begin, end, now, since) {
  charts.lanes.learn(status.workloads.map((one) => one.workload));
  charts.render(known, {
    begin, end, now, bands: shown, isLive: until === null, since,
    marks: marksOf(status), levels: levelsOf(status), without: status.board.dla_cores === 0 ? "dla" : null,
  });
}

/** Show what is known of the chosen time; while it is loaded, what the page has already. */
function showPast() {
  const known = past ?? { series, bands: [...bands.values()], since: bandsSince };
  draw(last.status, known.series, known.bands, until - span, until, until, Math.max(known.since, until - span));
}

/** Choose the time shown, from a chart, a button or a link; without a begin it is the present. */
function choose(begin, end, isDone = true, isKnown = false) {
  if (begin === null) {
    until = past = null;
    span = liveSpan;
  } else {
    span = Math.min(Math.max(end - begin, SHORTEST), LONGEST);
    until = Math.min(end, last?.status.time ?? end);
  }
  if (isDone) {
    const iso = (time) => new Date(time * 1000).toISOString().slice(0, 19);
    const hash = until === null ? "" : `#time=${iso(until - span)}Z/${iso(until)}Z`;
    history.replaceState(null, "", location.pathname + location.search + hash);
  }
  for (const one of document.querySelectorAll("#spans input")) one.checked = Number(one.value) === Math.round(span);
  say(at("pause"), until === null ? "Pause" : "Back to now");
  say(at("charts-title"), until === null ? "Now" : "Then");
  say(at("range"), until === null ? "" : `${moment(until - span)} to ${moment(until)}`);
  if (until === null) {
    series.clear();
    bandsUntil = null;
    runsOf.time = -Infinity; // the runs of a longer time are not known yet
    drawn.span = null;
  } else if (last !== null) {
    showPast();
    if (isDone && !isKnown) guarded(loadPast);
  }
}

/** Ask for the telemetry and the runs of the chosen time, as far as the store has them. */
async function loadPast() {
  asked += 1;
  const mine = asked;
  const [begin, end] = [until - span, until];
  const loaded = new Series();
  loaded.totalRails = last.status.total_rails;
  const answer = await ask("api/v1/bands", { since: begin, before: end });
  await takeSeries(loaded, begin, end, () => mine === asked && until !== null, () => {
    past = { series: loaded, bands: answer.bands.map(bandOfRow), since: answer.since };
    showPast();
  });
}

/** Take the telemetry between two times, a part after the other, while it is wanted. */
async function takeSeries(into, begin, end, isWanted, afterPart = () => {}) {
  for (let since = begin; since < end; since += PART_SECONDS) {
    const answer = await ask("api/v1/series", { since, until: Math.min(since + PART_SECONDS, end), step: stepOf() });
    if (!isWanted()) return; // another time was chosen meanwhile
    into.take(answer);
    afterPart();
  }
}

/** Return the seconds per point of the time shown. */
function stepOf() {
  return Number(Math.min(Math.max(span / POINTS, 0.2), 3600).toPrecision(2));
}

/** Take the time shown from a link. */
function followLink() {
  const [begin, end] = (/^#time=(.+)\/(.+)$/.exec(decodeURIComponent(location.hash)) ?? []).slice(1).map((text) => Date.parse(text) / 1000);
  if (!(end > begin)) return;
  choose(begin, end);
  at("charts-title").scrollIntoView();
}

/** Return the limits that charts show. */
function marksOf({ limits, trips }) {
  const trip = Math.min(...Object.values(trips));
  return {
    power: limits.power_watts ? [{ value: limits.power_watts, label: "configured budget", level: "bad", near: 0.5 }] : [],
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
  // A step of a long time is the mean of minutes, and need not be asked for each second.
  if (!isStale && now - caughtUp < stepOf() / 4) return;
  caughtUp = now;
  if (isStale) series.clear();
  const chosen = span;
  await takeSeries(series, series.end ?? now - span, now, () => chosen === span && until === null);
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

/** Ask for the runs that ended since the last answer; for all of the time shown at first. */
async function lookAtBands(now) {
  const isFirst = bandsUntil === null || bandsUntil > now;
  const since = isFirst ? now - span : bandsUntil - 10;
  const answer = await ask("api/v1/bands", { since });
  if (isFirst) bands.clear();
  if (isFirst || answer.since > since) bandsSince = answer.since;
  for (const row of answer.bands) bands.set(row[0], bandOfRow(row));
  for (const [id, band] of bands) if (band.end < now - span) bands.delete(id);
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
  troubles.show(status.troubles, status.time);
  at("vitals").replaceChildren(...vitals(status));
  title(status);
  workloads.take(status, runs.runs);
  models.take(compared, status);
  const processes = processTable(status);
  at("processes-section").hidden = processes === null;
  say(at("processes-title"), status.simulated ? "Processes of this machine, not simulated" : "Processes");
  // A link to a part that is not there would lead nowhere.
  for (const link of document.querySelectorAll("nav a")) link.hidden = at(link.hash.slice(1)).parentElement.closest("[hidden]") !== null;
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
  if (until === null) showLive(last.status, now);
  at("now").replaceChildren();
  at("danger").replaceChildren();
  at("vitals").replaceChildren();
  troubles.show(last.status.troubles, last.at, true);
  workloads.take(last.status, runs.runs, now, true);
  if (!wasGone) showRuns();
}

const waitMs = () => Math.min(EVERY_MS * 2 ** Math.max(failures - 1, 0), MOST_WAIT_MS);

async function forEver() {
  if (!document.hidden) await guarded(tick);
  setTimeout(forEver, failures ? waitMs() : EVERY_MS);
}

at("spans").addEventListener("change", (event) => {
  const end = until;
  span = liveSpan = Number(event.target.value);
  if (end === null) choose(null);
  else choose(end - span, end);
});
at("pause").addEventListener("click", () => {
  const now = last?.status.time;
  if (until !== null || now === undefined) {
    choose(null);
    return;
  }
  const inFlight = runs.in_flight.map((run) => bandOf(run, true, now));
  past = { series, bands: [...inFlight, ...bands.values()], since: bandsSince };
  choose(now - span, now, true, true);
});
at("earlier").addEventListener("click", () => {
  const end = until ?? last?.status.time;
  if (end !== undefined) choose(end - 1.5 * span, end - span / 2);
});
at("moment").addEventListener("change", (event) => {
  const middle = new Date(event.target.value).getTime() / 1000;
  if (middle > 0) choose(middle - span / 2, middle + span / 2);
});
charts.onRange = choose;
addEventListener("hashchange", followLink);
at("filter").addEventListener("input", (event) => {
  const words = event.target.value.trim().toLowerCase();
  workloads.filter(words);
  models.filter(words);
  showRuns();
});
at("older").addEventListener("click", () => guarded(showOlder));
isNarrow.addEventListener("change", showRuns);
followLink();
forEver();
