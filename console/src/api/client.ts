// Requests to the server that the page came from: keys, problems, and whether the server answers at all.

import { signal } from "@preact/signals";

/** The server's address, which ends with a slash; the page may live below a root path. */
export const BASE = new URL("./", document.baseURI);

/** An answer that says what went wrong, as RFC 9457 has it. */
export class Problem extends Error {
  readonly status: number;
  readonly title: string;
  readonly document: Record<string, unknown>;

  constructor(status: number, document: Record<string, unknown>) {
    const title = String(document["title"] ?? `The server answered ${status}`);
    super(String(document["detail"] ?? title));
    this.name = "Problem";
    this.status = status;
    this.title = title;
    this.document = document;
  }

  /** Whether the session is gone. Any other 404 is of something else that the server, or its version, does not have. */
  get isUnknownSession(): boolean {
    return this.status === 404 && String(this.document["type"]).endsWith(":unknown-session");
  }
}

/** The server did not answer. */
export class Unreachable extends Error {
  constructor() {
    super("the server does not answer");
    this.name = "Unreachable";
  }
}

// Keys ---------------------------------------------------------------------------------------------

export interface KeyRequest {
  reason: string;
  /** Takes the key; null if the user has none. */
  answer: (key: string | null) => void;
}

/** What the page asks the user for while a request waits for a key. */
export const keyRequest = signal<KeyRequest | null>(null);
/** Whether the user closed that question, and requests that need a key fail. */
export const locked = signal(false);
/** Lives in this variable only: a reload of the page forgets it. */
let key: string | null = null;
/** The last key that the server took. */
let taken: string | null = null;
let asked: Promise<boolean> | null = null;

function askForKey(reason: string): Promise<boolean> {
  asked ??= new Promise<boolean>((resolve) => {
    keyRequest.value = {
      reason,
      answer(given) {
        if (given !== null) key = given;
        locked.value = given === null;
        keyRequest.value = null;
        asked = null;
        resolve(given !== null);
      },
    };
  });
  return asked;
}

/** Ask for a key again after the user closed the question. */
export function unlock(): void {
  void askForKey("This server asks for an API key.");
}

export function hasKey(): boolean {
  return key !== null;
}

// Reachability -------------------------------------------------------------------------------------

/** Since when the server does not answer; null while it does. */
export const unreachableSince = signal<number | null>(null);
/** Counts how often the server came back, for whatever has to be read again then. */
export const reconnects = signal(0);

function noteAnswer(): void {
  if (unreachableSince.peek() === null) return;
  unreachableSince.value = null;
  reconnects.value += 1;
}

function noteSilence(): void {
  unreachableSince.value ??= Date.now();
}

// Requests -----------------------------------------------------------------------------------------

export interface Options {
  method?: string;
  body?: unknown;
  accept?: string;
  signal?: AbortSignal | undefined;
}

/** Send a request and return its successful response. Throws Problem, Unreachable or an AbortError. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  for (;;) {
    const used = key;
    const headers: Record<string, string> = { accept: options.accept ?? "application/json" };
    if (used !== null) headers["authorization"] = `Bearer ${used}`;
    if (options.body !== undefined) headers["content-type"] = "application/json";
    const init: RequestInit = { method: options.method ?? "GET", headers, cache: "no-store", credentials: "omit" };
    if (options.body !== undefined) {
      init.body = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
    }
    if (options.signal) init.signal = options.signal;
    let response: Response;
    try {
      response = await fetch(new URL(path, BASE), init);
    } catch (error) {
      if (options.signal?.aborted) throw error;
      noteSilence();
      throw new Unreachable();
    }
    if (response.status === 502 || response.status === 504) {
      noteSilence();
      throw new Unreachable();
    }
    noteAnswer();
    if (response.ok && path.startsWith("v1/")) taken = used; // elsewhere, any key will do
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401) throw problem;
    if (locked.value) throw problem;
    if (key !== used) continue; // another request got a key meanwhile
    const refused = `The server ${used === taken ? "no longer takes" : "does not take"} this API key.`;
    if (!(await askForKey(used === null ? "This server asks for an API key." : refused))) throw problem;
  }
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    return new Problem(response.status, (await response.json()) as Record<string, unknown>);
  } catch {
    return new Problem(response.status, {});
  }
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, { signal })).json()) as T;
}

export async function postJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, { method: "POST", body, signal })).json()) as T;
}

/** All items of a list, page by page. */
export async function getAll<T>(path: string, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const separator = path.includes("?") ? "&" : "?";
    const next: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    const page: { items: T[]; next_cursor: string | null } = await getJson(`${path}${separator}limit=1000${next}`, signal);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return items;
}

/** The URL of a session, relative to the server's. */
export function sessionPath(id: string, rest = ""): string {
  return `v1/sessions/${encodeURIComponent(id)}${rest}`;
}
