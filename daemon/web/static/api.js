// Where the daemon is. It may lie behind a prefix, so all is relative to the page.

const ROOT = new URL(document.documentElement.dataset.root, location.href);
// A URL with a password in it can't be asked; the browser sends what it knows by itself.
ROOT.username = ROOT.password = "";

const PATIENCE_MS = 10_000;

/** Return the address of something that the daemon serves. */
export function urlOf(path) {
  return new URL(path, ROOT).href;
}

/** Return a JSON document of the daemon; throws an Error that says what is wrong. */
export async function ask(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) });
  const told = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(told?.error ?? `${answer.status} ${answer.statusText}`);
  return told;
}
