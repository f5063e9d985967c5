// Where the page is, from the part of its URL after the hash: one file serves every route.

import { signal } from "@preact/signals";

export const SESSION_TABS = ["graph", "training", "programs", "try"] as const;
export type SessionTab = (typeof SESSION_TABS)[number];

export type Route =
  | { view: "sessions" }
  | { view: "session"; id: string; tab: SessionTab }
  | { view: "server" }
  | { view: "unknown"; path: string };

export function parseRoute(hash: string): Route {
  const path = hash.replace(/^#?\/?/, "");
  const [view = "", id = "", tab = ""] = path.split("/");
  if (view === "" || (view === "sessions" && id === "")) return { view: "sessions" };
  if (view === "server") return { view: "server" };
  const known = SESSION_TABS.find((each) => each === (tab === "" ? "graph" : tab));
  const decoded = decode(id);
  if (view === "sessions" && decoded !== null && known !== undefined) return { view: "session", id: decoded, tab: known };
  return { view: "unknown", path };
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

export function sessionHref(id: string, tab: SessionTab = "graph"): string {
  return `#/sessions/${encodeURIComponent(id)}/${tab}`;
}

export const route = signal<Route>(parseRoute(location.hash));
addEventListener("hashchange", () => (route.value = parseRoute(location.hash)));
