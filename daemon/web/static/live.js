// The status page: asks once a second what is new, and shows the last minutes.

import { ask } from "./api.js";
import { Charts } from "./charts.js";
import { make, say, tell } from "./dom.js";
import { explained } from "./flags.js";
import { bandOf } from "./lanes.js";
import { RunsTable } from "./runs_table.js";
import { Series } from "./series.js";
import { bytes, clock, count, digits, duration } from "./words.js";

const EVERY_MS = 1000;
const RUNS_EVERY_SECONDS = 30;
const PAGE_RUNS = 50;
// A span and the step that gives it about 450 points.
const STEPS = { 60: 0.2, 300: 1, 900: 2 };

const at = (id) => document.getElementById(id);
const charts = new Charts(at("charts"), at("cursor"));
const runsTable = new RunsTable(at("runs"));
const series = new Series();
let span = 900;
let isPaused = false;
let lastAnswer = null;
let runs = { in_flight: [], runs: [] };
let older = [];
let isAllShown = false;
let runsOf = { key: null, time: -Infinity, again: 0 };

async function tick() {
  const status = await ask("api/v1/status");
  showStatus(status);
  if (isPaused) return;
  series.totalRails = status.total_rails;
  // One after the other: two at a time would cost the daemon twice the memory.
  await catchUp(status.time);
  await lookAtRuns(status);
  const bands = [
    ...runs.in_flight.map((run) => bandOf(run, true, status.time)),
    ...[...runs.runs, ...older].map((run) => bandOf(run, false, status.time)),
  ];
  const now = status.time;
  charts.render(series, { begin: now - span, end: now, now, bands, isLive: true });
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
async function lookAtRuns({ time, workloads }) {
  const key = JSON.stringify(workloads.map((one) => [one.active_run, one.runs]));
  // A run is counted a moment before it is stored, so it is looked for twice.
  if (key !== runsOf.key) runsOf.again = 2;
  if (runsOf.again === 0 && time - runsOf.time < RUNS_EVERY_SECONDS) return;
  runsOf = { key, time, again: Math.max(0, runsOf.again - 1) };
  runs = await ask("api/v1/summaries", { limit: PAGE_RUNS });
  showRuns();
}

function showRuns() {
  const newest = new Set(runs.runs.map((run) => run.run_id));
  older = older.filter((run) => !newest.has(run.run_id));
  const finished = [...runs.runs, ...older];
  runsTable.render(runs.in_flight, finished);
  at("older").hidden = isAllShown || runs.runs.length < PAGE_RUNS;
  const flags = [...new Set([...runs.in_flight, ...finished].flatMap((run) => run.quality))];
  at("meanings").replaceChildren(...explained(flags));
}

async function showOlder() {
  const last = [...runs.runs, ...older].at(-1);
  const answer = await ask("api/v1/summaries", { limit: PAGE_RUNS, before: last.started_seconds });
  const known = new Set([...runs.runs, ...older].map((run) => run.run_id));
  older.push(...answer.runs.filter((run) => !known.has(run.run_id)));
  isAllShown = answer.runs.length < PAGE_RUNS;
  showRuns();
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
  say(at("version"), ` · tegrascope ${status.version}`);
  document.title = `${status.simulated ? "simulated · " : ""}${board.name ?? "tegrascope"} · tegrascope`;
  at("health").replaceChildren(...healthOf(status));
}

function healthOf({ sources, companions, store, throttle_events: throttled, skipped }) {
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
  lines.push(
    health("store", store.problem === null, [
      store.problem,
      store.write_errors > 0 && `${store.write_errors} failed writes`,
      store.free_bytes !== null && `${bytes(store.free_bytes)} free`,
    ]),
  );
  if (of(throttled)) lines.push(make("li", {}, make("b", {}, "throttled"), ` ${of(throttled)}`));
  if (of(skipped)) lines.push(make("li", {}, make("b", {}, "runs skipped"), ` ${of(skipped)}`));
  return lines;
}

function health(name, isUp, words) {
  const state = make("span", { class: isUp ? "up" : "down" }, isUp ? "up" : "down");
  const text = words.filter(Boolean).join(" · ");
  return make("li", {}, make("b", {}, name), " ", state, text && ` ${text}`);
}

async function guarded(work) {
  try {
    await work();
    lastAnswer = Date.now() / 1000;
  } catch (error) {
    const since = lastAnswer === null ? "" : ` What is shown is of ${clock(lastAnswer)}.`;
    tell(at("trouble"), `No answer from the daemon, trying again: ${error.message}.${since}`);
  }
}

async function forEver() {
  if (!document.hidden) await guarded(tick);
  setTimeout(forEver, EVERY_MS);
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
at("older").addEventListener("click", () => guarded(showOlder));
forEver();
