// Quality flags, and what each means in one sentence.

import { urlOf } from "./api.js";
import { make } from "./dom.js";

let known = null;

/** Return the sentence of each flag; the file is read once. */
export async function meanings() {
  known ??= fetch(urlOf("static/flags.json")).then((answer) => answer.json());
  try {
    return await known;
  } catch {
    known = null;
    return {};
  }
}

/** Return flags as marks. */
export function marks(flags) {
  return flags.map((flag) => make("span", { class: "flag" }, flag));
}

/** Return flags with their meaning, as the content of a <dl>. */
export async function explained(flags) {
  const sentences = await meanings();
  return flags.flatMap((flag) => [
    make("dt", {}, ...marks([flag])),
    make("dd", {}, sentences[flag] ?? "Not known to this page."),
  ]);
}
