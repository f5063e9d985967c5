// The ops of the server, searched as somebody types.

import { getJson } from "../api/client";
import type { OpEntry, Page } from "../api/types";

const LIMIT = 12;
const answers = new Map<string, Promise<OpEntry[]>>();

async function search(query: string): Promise<OpEntry[]> {
  const { items } = await getJson<Page<OpEntry>>(`v1/ops?limit=${LIMIT * 2}&${query}`);
  return items.filter((entry) => !entry.internal);
}

/** What is offered before anything is typed. */
const COMMON = ["tensor", "backward", "mul", "add", "sub", "matmul", "sum", "mean", "exp", "relu", "linear", "mse_loss"];

async function common(): Promise<OpEntry[]> {
  const found = await Promise.all(COMMON.map((name) => getJson<{ overloads: OpEntry[] }>(`v1/ops/${name}`)));
  return found.flatMap(({ overloads }) => overloads.slice(0, 1));
}

/** Ops that begin with a text, then those that mention it; for an empty text, common ones. */
export function complete(text: string): Promise<OpEntry[]> {
  const known = answers.get(text);
  if (known !== undefined) return known;
  const answer = text === "" ? common() : prefixed(text);
  answer.catch(() => answers.delete(text));
  answers.set(text, answer);
  return answer;
}

async function prefixed(text: string): Promise<OpEntry[]> {
  const encoded = encodeURIComponent(text);
  const [first, more] = await Promise.all([search(`prefix=${encoded}`), text.length < 2 ? [] : search(`q=${encoded}`)]);
  const keys = new Set(first.map((entry) => entry.key));
  return [...first.sort((a, b) => a.key.length - b.key.length), ...more.filter((entry) => !keys.has(entry.key))].slice(0, LIMIT);
}

/** An op by its key. Null if there is none. */
export async function find(key: string): Promise<OpEntry | null> {
  const entries = await complete(key);
  return entries.find((entry) => entry.key === key) ?? entries.find((entry) => entry.name === key) ?? null;
}

/** The name of an op that somebody writes in the JSON text of a program: what is before the caret. Null elsewhere. */
export function opBeforeCaret(text: string, caret: number): { from: number; name: string } | null {
  const match = /"op"\s*:\s*"([A-Za-z0-9_.]*)$/.exec(text.slice(0, caret));
  return match === null ? null : { from: caret - (match[1] ?? "").length, name: match[1] ?? "" };
}

/** What somebody typed as an input or attribute: JSON where it is JSON, else a string, such as a tensor's id. */
export function parseArgument(text: string): unknown {
  const trimmed = text.trim();
  try {
    return JSON.parse(trimmed) as unknown;
  } catch {
    if (/^\[.*\]$/s.test(trimmed)) {
      const items = trimmed.slice(1, -1).split(",").map((item) => item.trim()).filter(Boolean);
      return items.map(parseArgument);
    }
    return trimmed;
  }
}

/** The inputs of a request: those after the last given one are left out, an empty one before it is null. */
export function inputsOf(texts: string[]): unknown[] {
  const last = texts.findLastIndex((text) => text.trim() !== "");
  return texts.slice(0, last + 1).map((text) => (text.trim() === "" ? null : parseArgument(text)));
}
