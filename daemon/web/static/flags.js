// Quality flags, and what each means in one sentence.

import { make } from "./dom.js";
import meanings from "./flags.json" with { type: "json" };

/** Return flags as marks. */
export function marks(flags) {
  return flags.map((flag) => make("span", { class: "flag" }, flag));
}

/** Return flags with their meaning, as the content of a <dl>. */
export function explained(flags) {
  return flags.flatMap((flag) => [
    make("dt", {}, ...marks([flag])),
    make("dd", {}, meanings[flag] ?? "Not known to this page."),
  ]);
}
