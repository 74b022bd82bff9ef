/** The operator's page: sign in with an admin key, then watch reuse, requests and workers. */

import { count, duration, NONE, reasons, share, shortId, timeOfDay } from "./format.js";
import { bar, LiveTable, tag } from "./table.js";

const KEY = "saltway-admin-key";
const EVERY_MS = 1000;
const RATES_EVERY = 3; // ticks: the ledger is written in batches, more often shows nothing new

const el = (id) => document.getElementById(id);

const tables = {
  rates: new LiveTable("rates", (row) => row.tenant, [
    { text: (row) => row.tenant },
    bar((row) => row.hit_rate, (row) => row.predicted_rate, (row) => `${row.tenant}: ${share(row.hit_rate)} delivered`),
    { class: "num", text: (row) => share(row.hit_rate) },
    { class: "num", text: (row) => share(row.predicted_rate) },
    { class: "num", text: (row) => share(row.available_rate) },
    { class: "num", text: (row) => count(row.requests) },
    { class: "num", text: (row) => count(row.prompt_tokens) },
    { class: "num", text: (row) => count(row.cached_tokens) },
    { class: "num", text: (row) => count(row.completion_tokens) },
  ]),
  misses: new LiveTable("misses", (row) => `${row.tenant} ${row.template}`, [
    { text: (row) => row.tenant },
    { class: "id", text: (row) => row.template },
    bar(
      (row) => row.delivered_rate,
      (row) => row.available_rate,
      (row) => `${row.tenant}, ${row.template}: ${share(row.delivered_rate)} delivered`,
    ),
    { class: "num", text: (row) => share(row.delivered_rate) },
    { class: "num", text: (row) => share(row.routed_rate) },
    { class: "num", text: (row) => share(row.available_rate) },
    { class: "num", text: (row) => count(computed(row)) },
    { class: "wrap", text: (row) => reasons(row.missed_tokens) },
  ]),
  live: new LiveTable("live", (row) => row.id, [
    { class: "id", text: (row) => shortId(row.id), title: (row) => row.id },
    { text: (row) => row.tenant },
    { text: (row) => row.model || NONE },
    { text: (row) => row.worker || NONE },
    tag((row) => row.state, (row) => ({ decoding: "good", prefill: "warn" })[row.state] ?? ""),
    { class: "num", text: (row) => count(row.prompt_tokens) },
    { class: "num", text: (row) => count(row.cached_tokens) },
    { class: "num", text: (row) => count(row.completion_tokens) },
    { class: "num", text: (row) => duration(row.age_ms) },
  ]),
  workers: new LiveTable("workers", (row) => row.url, [
    { text: (row) => row.id || row.url },
    tag(standing, (row) => ({ ready: "good", joining: "warn", draining: "warn" })[row.state] ?? "bad"),
    { text: (row) => row.model || NONE },
    tag((row) => row.stream, (row) => (row.stream === "live" ? "good" : "warn")),
    tag((row) => row.circuit, (row) => ({ closed: "good", "half-open": "warn" })[row.circuit] ?? "bad"),
    tag((row) => row.parity, (row) => (row.parity === "trusted" ? "good" : "bad")),
    { class: "num", text: (row) => count(row.waiting) },
    { class: "num", text: (row) => count(row.running) },
    { class: "num", text: (row) => count(row.prefill_tps) },
    { class: "num", text: (row) => `${count(row.total_blocks - row.free_blocks)} / ${count(row.total_blocks)}` },
    { class: "num", text: (row) => count(row.index_blocks) },
    { class: "num", text: (row) => count(row.predicted_tokens) },
    { class: "num", text: (row) => count(row.delivered_tokens) },
  ]),
  recent: new LiveTable("recent", (row) => row.id, [
    { text: (row) => timeOfDay(row.ended_at) },
    { class: "id", text: (row) => shortId(row.id), title: (row) => row.id },
    { text: (row) => row.tenant },
    { text: (row) => row.worker || NONE },
    tag((row) => String(row.status), (row) => (row.status < 400 ? "good" : row.status < 500 ? "warn" : "bad")),
    { text: (row) => row.finish_reason ?? row.error_code ?? NONE },
    { class: "num", text: (row) => count(row.prompt_tokens) },
    { class: "num", text: (row) => count(row.cached_tokens) },
    { class: "num", text: (row) => count(row.predicted_tokens) },
    { class: "num", text: (row) => count(row.completion_tokens) },
    { class: "num", text: (row) => duration(row.ttft_ms) },
    { class: "num", text: (row) => duration(row.overhead_ms) },
    { class: "num", text: (row) => duration(row.duration_ms) },
  ]),
};

/** A worker's state, and why it does not answer where it does not. */
function standing(row) {
  return row.error ? `${row.state}: ${row.error}` : row.state;
}

function computed(row) {
  return Object.values(row.missed_tokens).reduce((sum, tokens) => sum + tokens, 0);
}

function chosenWindow() {
  return document.querySelector("input[name=window]:checked").value;
}

class Refused extends Error {}

let key = sessionStorage.getItem(KEY);
let current = 0;
let tick = 0;

async function get(path) {
  const reply = await fetch(`/admin/api/${path}`, { headers: { authorization: `Bearer ${key}` }, cache: "no-store" });
  if (reply.status === 401 || reply.status === 403) throw new Refused();
  if (!reply.ok) throw new Error(`The gateway answered ${reply.status}.`);
  return reply.json();
}

const sources = {
  async rates() {
    const { tenants, total } = await get(`hit-rates?window=${chosenWindow()}`);
    tables.rates.show(tenants);
    el("total-rate").textContent = share(total.hit_rate);
    el("total-requests").textContent = count(total.requests);
    el("total-prompt").textContent = count(total.prompt_tokens);
    el("total-cached").textContent = count(total.cached_tokens);
  },
  async misses() {
    tables.misses.show((await get(`misses?window=${chosenWindow()}`)).rows);
  },
  async live() {
    const { requests } = await get("live");
    tables.live.show(requests);
    el("total-live").textContent = count(requests.length);
  },
  async workers() {
    tables.workers.show((await get("workers")).workers);
  },
  async recent() {
    tables.recent.show((await get("recent")).requests);
  },
};

/** Refresh some of the sources; a failure is shown in its own card and in the status. What comes too late says nothing. */
async function refresh(names, run) {
  const results = await Promise.allSettled(names.map((name) => sources[name]()));
  if (run !== current) return;
  if (results.some((result) => result.reason instanceof Refused)) {
    signOut("That key is not a valid admin key.");
    return;
  }
  results.forEach((result, index) => {
    if (result.status === "rejected") tables[names[index]].fail(explain(result.reason));
  });
  const lost = results.some((result) => result.status === "rejected");
  status(lost ? "lost" : "live", lost ? "Connection lost, retrying" : "Live");
}

function explain(reason) {
  return reason instanceof TypeError ? "The gateway does not answer. Retrying each second." : reason.message;
}

function status(kind, text) {
  const pill = el("status");
  pill.dataset.kind = kind;
  if (pill.textContent !== text) pill.textContent = text;
}

/** One loop at a time: `run` goes stale as soon as another loop is started or the operator signs out. */
async function loop(run) {
  if (document.hidden) {
    status("paused", "Paused");
  } else {
    await refresh(tick % RATES_EVERY === 0 ? Object.keys(sources) : ["live", "workers", "recent"], run);
    tick += 1;
  }
  if (run === current) setTimeout(loop, EVERY_MS, run);
}

function start() {
  current += 1;
  tick = 0;
  el("sign-in").hidden = true;
  el("figures").hidden = false;
  el("sign-out").hidden = false;
  loop(current);
}

function signOut(message = "") {
  current += 1;
  key = null;
  sessionStorage.removeItem(KEY);
  el("figures").hidden = true;
  el("sign-out").hidden = true;
  el("sign-in").hidden = false;
  el("sign-in-error").textContent = message;
  el("key").value = "";
  status("idle", "Signed out");
  el("key").focus();
}

/** Sign in only with a key that works: nothing is shown, and nothing kept, before the gateway has accepted it. */
async function signIn(event) {
  event.preventDefault();
  key = el("key").value.trim();
  try {
    if (!/^[\x21-\x7e]+$/.test(key)) throw new Refused(); // fetch cannot send anything else in a header
    await get("live");
  } catch (error) {
    signOut(error instanceof Refused ? "That key is not a valid admin key." : explain(error));
    return;
  }
  sessionStorage.setItem(KEY, key);
  el("sign-in-error").textContent = "";
  start();
}

el("sign-in").addEventListener("submit", signIn);
el("sign-out").addEventListener("click", () => signOut());
for (const choice of document.querySelectorAll("input[name=window]")) {
  choice.addEventListener("change", () => refresh(["rates", "misses"], current));
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && key) start();
});

if (key) start();
else signOut();
