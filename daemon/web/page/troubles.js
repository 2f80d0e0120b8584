// The present troubles: a line per cause, with since when, the reason, and where to look.

import { runUrl } from "./api.js";
import { make, say } from "./dom.js";
import { ago, clock, moment, stamp } from "./words.js";

const LEVELS = { critical: "bad", warning: "warn", info: "told" };
const PLACES = {
  heat: ["#temperature", "chart"], memory: ["#memory", "chart"], source: ["#health", "sources"], runs: ["#workloads-title", "workloads"],
};
const SUMMARIES = {
  heat: (count) => `${count} signs of heat`,
  memory: () => "memory",
  source: (count) => `${count} sources return no data`,
  runs: (count) => `${count} workloads fail`,
};

// What a person does first; the runbook of the alert has the rest.
const STEPS = {
  heat: "Cool the board, or choose a lower power mode. Zones: docs/fields.md#temperatures",
  memory: "Stop a program, or use a smaller model or batch. Figures: docs/fields.md#memory",
  source: "Look into the log of the daemon; tegrascope doctor checks the board.",
  runs: "Open the last failed run for its log; tegrascope doctor checks the board.",
};

export class Troubles {
  constructor(place, note) {
    Object.assign(this, { place, note, key: null, known: new Set() });
  }

  /** Show the troubles of a time; those of a daemon that is gone say so. Parts of a critical one are open at first. */
  show(troubles, time, isGone = false) {
    say(this.note, isGone && troubles.length > 0 ? `Troubles as of ${clock(time)}:` : "");
    const key = JSON.stringify([troubles, troubles.map(({ since }) => ageOf(time - since))]);
    if (key === this.key) return;
    this.key = key;
    const causes = new Map();
    for (const one of troubles) causes.set(one.cause, [...(causes.get(one.cause) ?? []), one]);
    const open = new Set([...this.place.querySelectorAll("details[open]")].map((one) => one.dataset.cause));
    const critical = [...causes].filter(([, [worst]]) => worst.severity === "critical").map(([cause]) => cause);
    for (const cause of critical) if (!this.known.has(cause)) open.add(cause);
    // One that was a warning before opens once when it becomes critical, and not at each turn.
    this.known = new Set([...critical, ...[...this.known].filter((cause) => causes.has(cause))]);
    this.place.replaceChildren(...[...causes].map(([cause, found]) => line(cause, found, open.has(cause), time)));
  }
}

// Seconds would draw the lines anew each second, under the pointer of a reader.
const ageOf = (seconds) => (seconds < 120 ? "a moment ago" : ago(seconds));

function line(cause, found, isOpen, time) {
  const [worst] = found;
  // The worst part may be new, and the trouble old.
  const first = found.reduce((one, other) => (other.since < one.since ? other : one));
  const before = first.since < worst.since ? `; ${first.text} since ${moment(first.since)}` : "";
  const [href, name] = PLACES[cause];
  const parts = [
    make("b", {}, worst.severity), ` ${worst.text}`,
    make("small", {}, ` since ${stamp(worst.since)}, ${ageOf(time - worst.since)}${before} · `), make("a", { href }, name),
  ];
  parts.push(...runLink(worst));
  if (found.length > 1) {
    const items = found.map((one) => make("li", {}, one.text, make("small", {}, ` since ${moment(one.since)}`), ...runLink(one)));
    parts.push(make("details", { "data-cause": cause, open: isOpen ? "" : null }, make("summary", {}, SUMMARIES[cause](found.length)), make("ul", {}, ...items)));
  }
  parts.push(make("small", { class: "step" }, STEPS[cause]));
  return make("li", { class: LEVELS[worst.severity] }, ...parts);
}

function runLink({ run_id: id }) {
  return id === null ? [] : [" · ", make("a", { href: runUrl(id) }, "last failed run")];
}
