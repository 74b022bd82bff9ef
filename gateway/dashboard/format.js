/** How figures are written: one way for each kind. Everything returns a string. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const NONE = "–";

export function count(value) {
  return value < 100000 ? whole.format(value) : compact.format(value);
}

export function share(value) {
  return value === null || value === undefined ? NONE : `${(value * 100).toFixed(1)} %`;
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NONE;
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${whole.format(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

export function timeOfDay(epochMilliseconds) {
  return clock.format(new Date(epochMilliseconds));
}

export function shortId(id) {
  return id.length > 14 ? `…${id.slice(-12)}` : id;
}

/** "first seen 62.0 %, evicted 30.5 %": the largest first, each a share of all; lines break between them only. */
export function reasons(tokens) {
  const total = Object.values(tokens).reduce((sum, value) => sum + value, 0);
  const sorted = Object.entries(tokens).sort(([, one], [, other]) => other - one);
  const each = sorted.map(([reason, value]) => `${reason} ${share(value / total)}`.replaceAll(/[_ ]/g, "\u00a0"));
  return each.join(", ") || NONE;
}
