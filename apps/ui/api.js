// Requests to /v1. The token is kept in memory, and in sessionStorage only if its owner asks for that.

// Where /v1 is: a proxy may serve all of it below a path.
const BASE = new URL("..", import.meta.url);
const KEPT_AS = `dets-token ${BASE.pathname}`;
const PAGE = 250;
const MOST_TRIES = 4;

let token = sessionStorage.getItem(KEPT_AS) ?? "";
let onLogin = () => Promise.resolve();

/** `ask` is called when a token is needed; requests go on when its promise is kept. */
export function whenLoginIsNeeded(ask) {
  let asking = null;
  onLogin = (detail) => (asking ??= ask(detail).finally(() => { asking = null; }));
}

export function setToken(text, keep) {
  token = text;
  if (keep) sessionStorage.setItem(KEPT_AS, text);
  else sessionStorage.removeItem(KEPT_AS);
}

export class Refusal extends Error {
  constructor(status, problem, retryAfterS) {
    super(problem.detail ?? `the controller answers ${status}`);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

export function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

/** Fetches a response that is 2xx; a Refusal otherwise. Asks for a token where one is needed. */
export async function send(method, path, { body, ifMatch, signal, more = {} } = {}) {
  for (let tried = 1; ; tried += 1) {
    const given = body === undefined ? { ...more } : { ...more, "Content-Type": "application/json" };
    if (ifMatch !== undefined) given["If-Match"] = ifMatch;
    const answer = await fetch(new URL(`.${path}`, BASE), {
      method, signal, headers: headers(given), body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin", redirect: "error",
    });
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    const refusal = new Refusal(answer.status, problem, Number(answer.headers.get("Retry-After")) || 1);
    if (answer.status === 401) await onLogin(refusal.message);
    else if (method === "GET" && (answer.status === 429 || answer.status === 503) && tried < MOST_TRIES) {
      await new Promise((done) => setTimeout(done, 1000 * refusal.retryAfterS));
    } else throw refusal;
  }
}

export async function get(path, signal) {
  return (await send("GET", path, { signal })).json();
}

/** All items of a list, page by page; `most` ends it early. */
export async function list(path, key, { signal, most = Infinity } = {}) {
  const found = [];
  for (let cursor = ""; ;) {
    const query = `${path.includes("?") ? "&" : "?"}limit=${PAGE}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
    const page = await get(path + query, signal);
    found.push(...page[key]);
    if (!page.next || found.length >= most) return found;
    cursor = page.next;
  }
}

export function vnPath(vid, switchName, portNo) {
  return `/v1/vns/${vid}/${encodeURIComponent(switchName)}/${portNo}`;
}
