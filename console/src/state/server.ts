// The server as a whole: its version, when it started to count, and whether it is back after a silence.

import { effect, signal } from "@preact/signals";
import { getJson, reconnects, unreachableSince } from "../api/client";
import type { Health, Usage } from "../api/types";

const RETRY_MS = 1500;

export const serverVersion = signal<string | null>(null);
/** What the page tells the user about a restart, until it is dismissed. */
export const restartNotice = signal<string | null>(null);
let startedAt: string | null = null;

/** Whether the page was made for another version than the server's. */
export function versionDiffers(): boolean {
  return serverVersion.value !== null && serverVersion.value !== __VERSION__;
}

async function readHealth(): Promise<void> {
  serverVersion.value = (await getJson<Health>("healthz")).version;
  const since = (await getJson<Usage>("v1/usage?limit=1")).since;
  if (startedAt !== null && since !== startedAt) {
    const time = new Date(since).toLocaleTimeString("en-GB");
    restartNotice.value = `The server restarted at ${time}. Sessions that are not durable ended.`;
  }
  startedAt = since;
}

/** Read the server's version now and after each silence, and ask during a silence whether it is back. */
export function watchServer(): void {
  effect(() => {
    void reconnects.value;
    readHealth().catch(() => undefined);
  });
  effect(() => {
    if (unreachableSince.value === null) return;
    const timer = setInterval(() => void getJson<Health>("healthz").catch(() => undefined), RETRY_MS);
    return () => clearInterval(timer);
  });
}
