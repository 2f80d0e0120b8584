// Where the daemon is. It may lie behind a prefix, so all is relative to the page.

const { root } = document.documentElement.dataset;
/** A saved page holds its data, and is read where no daemon is. */
export const isSaved = root === undefined;

const ROOT = new URL(root ?? ".", location.href);
// A URL with a password in it can't be asked; the browser sends what it knows by itself.
ROOT.username = ROOT.password = "";

const PATIENCE_MS = 10_000;

/** Return the address of something that the daemon serves. */
export function urlOf(path) {
  return new URL(path, ROOT).href;
}

/** Return the address of the page of a run; a saved page shows the run itself. */
export function runUrl(id) {
  const name = encodeURIComponent(id);
  return isSaved ? `#run-${name}` : urlOf(`runs/${name}`);
}

/** Return a JSON document of the daemon; throws an Error that says what is wrong. */
export async function ask(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) }).catch((error) => {
    // Browsers word this each in their own way.
    const isSlow = error.name === "TimeoutError";
    throw new Error(isSlow ? `no answer within ${PATIENCE_MS / 1000} s` : "no connection");
  });
  const told = await answer.json().catch(() => null);
  if (!answer.ok) throw Object.assign(new Error(told?.error ?? `status ${answer.status}`), { isAnswer: true });
  if (told === null) throw new Error("the answer is not complete");
  return told;
}
