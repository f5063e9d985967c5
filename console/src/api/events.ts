// Server-sent events, read by fetch: an EventSource cannot send the key.

import type { ServerEvent } from "./types";
import { Problem, send } from "./client";

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 8000;

/** Splits the text of a stream into events. Comments, and events without data, are left out. */
export class EventParser {
  private rest = "";

  push(text: string): ServerEvent[] {
    const blocks = (this.rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((event) => event !== null);
  }
}

function parseBlock(block: string): ServerEvent | null {
  let name = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length === 0) return null;
  try {
    return { name, data: JSON.parse(data.join("\n")) as unknown };
  } catch {
    return null;
  }
}

export interface Listening {
  onOpen: () => void;
  onEvent: (event: ServerEvent) => void;
  /** The stream broke, or could not be opened for now; it is opened again. */
  onBreak: () => void;
  /** The server will not open it: the session is gone, or the key does not allow it. */
  onRefused: (problem: Problem) => void;
}

/** Listen until the signal is aborted or the server refuses, with a new connection after each break. */
export async function listen(path: string, to: Listening, signal: AbortSignal): Promise<void> {
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    try {
      const response = await send(path, { accept: "text/event-stream", signal });
      to.onOpen();
      wait = FIRST_WAIT_MS;
      await readAll(response, to.onEvent);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500 && error.status !== 429) return to.onRefused(error);
    }
    if (signal.aborted) return;
    to.onBreak();
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, MAX_WAIT_MS);
  }
}

async function readAll(response: Response, onEvent: (event: ServerEvent) => void): Promise<void> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.push(value).forEach(onEvent);
  }
}
