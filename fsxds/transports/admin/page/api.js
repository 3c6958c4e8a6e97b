// Asks the address that this page came from, and listens to its events.

const TOKEN = "fsxds-token";
const SILENCE_MS = 40_000; // the server says something every 15 s
const LONGEST_WAIT_MS = 15_000;

export class TokenNeeded extends Error {}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function send(path, signal) {
  const response = await fetch(path, { headers: headers(), signal, cache: "no-store", redirect: "error" });
  if (response.status === 401) throw new TokenNeeded();
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Error(said.message ?? `the server answered ${response.status}`);
  }
  return response;
}

// Return the JSON at a path. Parameters that are empty are not sent.
export async function ask(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  const response = await send(`${path}${query}`, signal);
  return response.json();
}

// Listen for ever. `on.changed()` when something changed, `on.up()` when connected, `on.down(seconds)` when it is tried
// again in so many seconds, `on.token()` when a token is needed, which ends it.
export async function listen(on) {
  let failures = 0;
  for (;;) {
    const ending = new AbortController();
    try {
      const response = await send("/api/events", ending.signal);
      failures = 0;
      on.up();
      await read(response.body.getReader(), ending, on.changed);
    } catch (error) {
      if (error instanceof TokenNeeded) {
        on.token();
        return;
      }
    }
    ending.abort();
    // Spread, so that the pages of a whole team do not come back at once.
    const wait_ms = Math.min(LONGEST_WAIT_MS, 500 * 2 ** failures) * (0.75 + Math.random() / 2);
    failures += 1;
    on.down(wait_ms / 1000);
    await pause(wait_ms);
  }
}

async function read(reader, ending, changed) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const silence = setTimeout(() => ending.abort(), SILENCE_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    if (events.some((each) => each.includes("event: changed"))) changed();
  }
}

// Wait; less where the page is looked at again, or the network is back.
function pause(wait_ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(end, wait_ms);
    function end() {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      document.removeEventListener("visibilitychange", seen);
      resolve();
    }
    function seen() {
      if (!document.hidden) end();
    }
    window.addEventListener("online", end);
    document.addEventListener("visibilitychange", seen);
  });
}
