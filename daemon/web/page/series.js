// Telemetry as the daemon gives it: a row a step, with mean and highest value of each signal.

/** The sum of the rails that make the module's total, where the board's rule is known. */
export const MODULE = "watts/module";

export class Series {
  constructor() {
    this.rows = [];
    this.step = 1;
    this.interval = null;
    this.totalRails = [];
    // Chart, label and whether it is a gate, by name, as the daemon says.
    this.lines = new Map([[MODULE, { chart: "power", label: "module", gate: false }]]);
  }

  /** Begin of the newest step; null without any. */
  get end() {
    return this.rows.at(-1)?.time ?? null;
  }

  /** Between points that lie further apart than this nothing is known. */
  get gap() {
    return 2.5 * Math.max(this.step, this.interval ?? 0);
  }

  /** Take an answer of the daemon; a step that is told again takes the place of the old one. */
  take(answer) {
    this.step = answer.step;
    this.interval = answer.interval ?? this.interval;
    for (const { columns, lines, rows } of answer.parts) {
      columns.forEach((name, index) => this.lines.set(name, lines[index]));
      for (const [time, means, highest] of rows) {
        while (this.rows.length > 0 && this.rows.at(-1).time >= time) this.rows.pop();
        const values = new Map(
          columns.map((name, index) => [name, { mean: means[index], highest: highest[index] }]),
        );
        this.#addTotal(values);
        this.rows.push({ time, values });
      }
    }
  }

  #addTotal(values) {
    const rails = this.totalRails.map((rail) => values.get(this.#power(rail)));
    if (rails.length < 2 || rails.includes(undefined) || values.has(MODULE)) return;
    // Its highest moment is no sum of theirs, which need not have been the same one.
    values.set(MODULE, { mean: rails.reduce((sum, rail) => sum + rail.mean, 0), highest: null });
  }

  #power(rail) {
    return [...this.lines.keys()].find((name) => {
      const { chart, label } = this.lines.get(name);
      return chart === "power" && label === rail;
    });
  }

  dropBefore(time) {
    const first = this.rows.findIndex((row) => row.time + this.step >= time);
    this.rows.splice(0, first < 0 ? this.rows.length : first);
  }

  clear() {
    this.rows = [];
  }

  /** Names of all signals that are there, in the order in which they came up. */
  names() {
    return [...new Set(this.rows.flatMap((row) => [...row.values.keys()]))];
  }

  /** Return a signal as stretches without a gap, each of [time, mean] in the middle of its step. */
  pieces(name) {
    const pieces = [];
    let last = -Infinity;
    for (const { time, values } of this.rows) {
      const value = values.get(name);
      if (value === undefined) {
        last = -Infinity;
        continue;
      }
      if (time - last > this.gap) pieces.push([]);
      pieces.at(-1).push([time + this.step / 2, value.mean]);
      last = time;
    }
    return pieces;
  }

  /** Return the row at a time, or null where nothing is known of it. */
  at(time) {
    const row = this.rows.findLast((one) => one.time <= time);
    return row !== undefined && time - row.time <= this.gap ? row : null;
  }

  /** Return the counts that rose, with how often and the time of the last: throttling by kind. */
  risen() {
    const found = new Map();
    const before = new Map();
    for (const { time, values } of this.rows) {
      for (const [name, { highest }] of values) {
        const { chart, label } = this.lines.get(name);
        if (chart !== "throttle") continue;
        const events = highest - (before.get(name) ?? highest);
        if (events > 0) found.set(label, { kind: label, events: events + (found.get(label)?.events ?? 0), last: time });
        before.set(name, highest);
      }
    }
    return [...found.values()];
  }

  /** Return the mean of a signal between two times; undefined where it has no value. */
  meanBetween(name, begin, end) {
    const inside = this.rows.filter(({ time, values }) => time >= begin && time + this.step <= end && values.has(name));
    if (inside.length === 0) return undefined;
    return inside.reduce((sum, { values }) => sum + values.get(name).mean, 0) / inside.length;
  }

  /** Return latest, mean, lowest and highest of a signal; null where it has no value. */
  summary(name) {
    const told = this.rows.map((row) => row.values.get(name)).filter((one) => one !== undefined);
    if (told.length === 0) return null;
    const means = told.map((one) => one.mean);
    return {
      latest: this.rows.at(-1).values.get(name)?.mean ?? null,
      mean: means.reduce((sum, mean) => sum + mean, 0) / means.length,
      lowest: Math.min(...means),
      highest: Math.max(...told.map((one) => one.highest ?? one.mean)),
    };
  }
}
