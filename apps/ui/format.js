// Numbers and times as people read them. Rates are bit/s on the wire; null is unknown.

const SCALES = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
const RATE = /^(\d+(?:\.\d+)?)\s*([kMGT]?)(?:bit\/s|bps|bit|b\/s)?$/;
const LEAST_BPS = 1000;

const digits = (value) => String(Number(value.toPrecision(4)));

/** A rate with at most four digits, as `dets top` has it: 37.5M. */
export function rate(bps) {
  if (bps == null || Number.isNaN(bps)) return "–";
  for (const [suffix, scale] of SCALES) if (Math.abs(bps) >= scale) return digits(bps / scale) + suffix;
  return digits(bps);
}

/** The same for sentences: 37.5 Mb/s. */
export function rateInWords(bps) {
  const text = rate(bps);
  if (text === "–") return "unknown";
  return /[kMGT]$/.test(text) ? `${text.slice(0, -1)} ${text.slice(-1)}b/s` : `${text} b/s`;
}

/** A rate as it is typed, with no digit lost. */
export function exactRate(bps) {
  for (const [suffix, scale] of SCALES) {
    if (bps >= scale) {
      const whole = Math.floor(bps / scale), rest = String(bps % scale).padStart(String(scale).length - 1, "0");
      return `${whole}.${rest}`.replace(/\.?0+$/, "") + suffix;
    }
  }
  return String(bps);
}

/** Bit/s for 25M, 1.5G or a whole number; throws an Error that says what to write. */
export function parseRate(text) {
  const found = RATE.exec(text.trim());
  if (!found) throw new Error("write a rate in bit/s, such as 25M, 1.5G or 64000");
  const scale = found[2] ? SCALES.find(([suffix]) => suffix === found[2])[1] : 1;
  const bps = Math.round(Number(found[1]) * scale);
  if (!(bps >= LEAST_BPS)) throw new Error("a limit is at least 1k");
  return bps;
}

export function percent(part, whole) {
  return !whole || part === null ? "–" : `${Math.round((100 * part) / whole)} %`;
}

export function seconds(s) {
  if (s == null) return "–";
  if (s < 10) return `${digits(s)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${digits(s / 3600)} h`;
}

const iso = (at) => new Date(at - 60000 * at.getTimezoneOffset()).toISOString();

/** The local time of day as in ISO 8601, or for another day date and time. */
export function localTime(utc) {
  if (!utc) return "–";
  const text = iso(new Date(utc)), day = text.slice(0, 10), time = text.slice(11, 19);
  return iso(new Date()).startsWith(day) ? time : `${day} ${time}`;
}

/** The place of a port: the switch's name, and the port's interface or number. */
export const place = (end) => `${end.switch}:${end.port ?? end.port_no}`;
