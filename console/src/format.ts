// Numbers, sizes and times as text.

import type { Amount, Real } from "./api/types";

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** A number of the server as a number of JavaScript, with NaN and the infinities. */
export function real(value: Real | null | undefined): number {
  return value === null || value === undefined ? NaN : Number(value);
}

/** Whether a value is a NaN or an infinity, rather than absent. */
export function isBad(value: Real | null | undefined): boolean {
  return value !== null && value !== undefined && !Number.isFinite(Number(value));
}

/** At most `digits` significant digits; very large and very small numbers in scientific notation. */
export function formatNumber(value: Real | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text =
    size >= 1e6 || size < 1e-3
      ? number.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e")
      : String(Number(number.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

/** A count with separators between thousands. */
export function formatCount(value: number): string {
  return Math.round(value).toLocaleString("en-GB").replaceAll(",", " ");
}

/** A count in words of at most five characters, such as 12.3k. */
export function formatShort(value: number): string {
  if (value < 1000) return String(Math.round(value * 10) / 10);
  if (value < 1e6) return `${Number((value / 1e3).toPrecision(3))}k`;
  return `${Number((value / 1e6).toPrecision(3))}M`;
}

export function formatBytes(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${BYTE_UNITS[unit]}`;
}

/** A duration in seconds, from nanoseconds to days. */
export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${Number((seconds * 1e9).toPrecision(3))} ns`;
  if (size < 1e-3) return `${Number((seconds * 1e6).toPrecision(3))} µs`;
  if (size < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (size < 60) return `${Number(seconds.toPrecision(3))} s`;
  return formatAge(seconds);
}

/** A long duration, in its two largest units. */
export function formatAge(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return joined(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return joined(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

function joined(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** A shape as mathematicians write it; `scalar` for an empty one. */
export function formatShape(shape: number[] | null | undefined): string {
  if (shape === null || shape === undefined) return "–";
  return shape.length === 0 ? "scalar" : shape.join(" × ");
}

/** Any JSON value on one line, cut after `limit` characters. */
export function formatJson(value: unknown, limit = 400): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > limit ? `${text.slice(0, limit)}…` : text;
}

/** "1 node", "2 nodes". */
export function plural(count: number, word: string, many = `${word}s`): string {
  return `${formatCount(count)} ${count === 1 ? word : many}`;
}

export function clockTime(date: Date): string {
  return date.toLocaleTimeString("en-GB");
}

/** A gradient as text: the number of one element, else its norm after `before`. */
export function amountText({ norm, number }: Amount, before: string): string {
  return number === undefined || number === null ? `${before}${formatNumber(norm, 3)}` : formatNumber(number, 4);
}

/** Gradients that are added: numbers as a sum, norms as a list. */
export function sumText(amounts: readonly Amount[]): string {
  const isNumbers = amounts.every(({ number }) => number !== undefined && number !== null);
  return amounts.map((amount) => amountText(amount, "norm ")).join(isNumbers ? " + " : ", ");
}
