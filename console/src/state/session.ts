// One session that somebody watches: its state, and what its events tell. Kept while the views of the session change.

import { batch, signal } from "@preact/signals";
import { Problem, getJson, postJson, reconnects, sessionPath } from "../api/client";
import { listen } from "../api/events";
import type {
  BackwardFlow,
  FoldedGraph,
  GraphEvent,
  GraphNode,
  ProgramEvent,
  Real,
  ScalarsEvent,
  ServerEvent,
  SessionStatus,
  Source,
} from "../api/types";
import { formatSeconds, real } from "../format";
import type { Folding, GraphQuery, GraphSource } from "./graph";

const FLOW_LIMIT = 2000;
const MAX_PROGRAMS = 2000;
const MAX_MEMORY = 4000;
/** How often the views learn what events told: events may be far more frequent. */
const TICK_MS = 250;
const RATE_WINDOW_S = 10;
/** How often the views count again what only time changes, and the state of the session is read while programs run. */
const CLOCK_MS = 1000;
const STATUS_MS = 2000;

export interface RunProgram extends ProgramEvent {
  /** When it ended, in seconds since 1970. */
  endedAt: number;
}

/** One scalar over the steps. Of a long one, every second point goes when it has twice as many as are drawn. */
export class Curve {
  private static readonly MAX_POINTS = 20_000;
  readonly steps: number[] = [];
  readonly values: number[] = [];
  /** How many values were NaN or infinite. */
  bad = 0;
  private stride = 1;
  private count = 0;

  constructor(
    readonly key: string,
    public label: string,
  ) {}

  add(step: number, value: Real): void {
    const number = real(value);
    if (!Number.isFinite(number)) this.bad += 1;
    this.count += 1;
    if ((this.count - 1) % this.stride !== 0) return;
    this.steps.push(step);
    this.values.push(number);
    if (this.steps.length >= Curve.MAX_POINTS) this.thin();
  }

  private thin(): void {
    for (const list of [this.steps, this.values]) {
      const half = list.filter((_, index) => index % 2 === 0);
      list.splice(0, list.length, ...half);
    }
    this.stride *= 2;
  }
}

export type StreamState = "opening" | "open" | "broken" | "refused";

export class SessionWatch implements GraphSource {
  readonly status = signal<SessionStatus | null>(null);
  readonly error = signal<Error | null>(null);
  /** Why the session ended; null while it lives. */
  readonly ended = signal<string | null>(null);
  readonly expiring = signal<string | null>(null);
  readonly stream = signal<StreamState>("opening");
  readonly lost = signal(0);
  /** The numbers of the live graph and of the last observed step; null before the first event. */
  readonly live = signal<GraphEvent | null>(null);
  readonly step = signal<GraphEvent | null>(null);
  /** Counts what changed, at most four times a second. */
  readonly tick = signal(0);
  readonly programs: RunProgram[] = [];
  readonly curves = new Map<string, Curve>();
  readonly memory = { times: [] as number[], bytes: [] as number[] };
  private readonly controller = new AbortController();
  private readonly stopReconnects: () => void;
  private timer = 0;
  private readonly clock: number;
  private statusTimer = 0;
  private scalarSteps = 0;

  constructor(readonly id: string) {
    void this.readStatus();
    void listen(
      sessionPath(id, "/events?observe=true"),
      {
        onOpen: () => (this.stream.value = "open"),
        onEvent: (event) => this.take(event),
        onBreak: () => (this.stream.value = "broken"),
        onRefused: (problem) => this.refused(problem),
      },
      this.controller.signal,
    );
    this.clock = window.setInterval(() => {
      if (this.programs.length > 0 && !document.hidden) this.tick.value += 1;
    }, CLOCK_MS);
    this.stopReconnects = reconnects.subscribe(() => void this.readStatus());
  }

  close(): void {
    this.controller.abort();
    this.stopReconnects();
    clearTimeout(this.timer);
    clearInterval(this.clock);
    clearTimeout(this.statusTimer);
  }

  async readStatus(): Promise<void> {
    try {
      this.status.value = await getJson<SessionStatus>(sessionPath(this.id), this.controller.signal);
      this.error.value = null;
    } catch (error) {
      if (this.controller.signal.aborted) return;
      if (error instanceof Problem) this.refused(error);
      else this.error.value = error as Error;
    }
  }

  changes(source: Source): unknown {
    return [source === "live" ? this.live.value : this.step.value, this.status.value];
  }

  title(): string {
    return this.status.value?.name ?? this.id;
  }

  folded({ source, fold, expand, limit, root }: GraphQuery, signal: AbortSignal): Promise<FoldedGraph> {
    const query = new URLSearchParams({ source, fold, limit: String(limit) });
    for (const id of expand) query.append("expand", id);
    if (root !== null) query.append("root", root);
    return getJson(sessionPath(this.id, `/graph/folded?${query}`), signal);
  }

  node(id: string, source: Source, signal: AbortSignal): Promise<GraphNode> {
    return getJson(sessionPath(this.id, `/graph/nodes/${encodeURIComponent(id)}?source=${source}`), signal);
  }

  flow(tensor: string, folding: Folding): Promise<BackwardFlow> {
    return postJson(sessionPath(this.id, "/graph/backward"), { tensor, limit: FLOW_LIMIT, ...folding });
  }

  /** Programs a second over the last seconds. */
  rate(): number {
    const now = Date.now() / 1000;
    let count = 0;
    for (let index = this.programs.length - 1; index >= 0; index -= 1) {
      if ((this.programs[index]?.endedAt ?? 0) < now - RATE_WINDOW_S) break;
      count += 1;
    }
    const oldest = this.programs[this.programs.length - count]?.endedAt ?? now;
    return count === 0 ? 0 : count / Math.max(1, Math.min(RATE_WINDOW_S, now - oldest));
  }

  private refused(problem: Problem): void {
    if (problem.isUnknownSession && this.status.peek() !== null) this.ended.value ??= "it is no longer on the server";
    else if (this.ended.peek() === null) this.error.value = problem;
    this.stream.value = "refused";
  }

  private take({ name, data }: ServerEvent): void {
    if (name === "program") this.takeProgram(data as ProgramEvent);
    else if (name === "scalars") this.takeScalars(data as ScalarsEvent);
    else if (name === "graph") this.live.value = data as GraphEvent;
    else if (name === "step") this.step.value = data as GraphEvent;
    else if (name === "expiring") this.expiring.value = String((data as { expires_at: string }).expires_at);
    else if (name === "lost") this.lost.value += (data as { count: number }).count;
    else if (name === "ended") this.end(String((data as { reason: string }).reason));
    this.scheduleTick();
  }

  private end(reason: string): void {
    batch(() => {
      this.ended.value = reason;
      this.stream.value = "refused";
    });
    this.controller.abort();
    clearInterval(this.clock);
    clearTimeout(this.statusTimer);
  }

  private takeProgram(event: ProgramEvent): void {
    if (this.statusTimer === 0) {
      const wait = this.programs.length === 0 ? 0 : STATUS_MS;
      this.statusTimer = window.setTimeout(() => {
        this.statusTimer = 0;
        void this.readStatus();
      }, wait);
    }
    const endedAt = event.at === undefined ? Date.now() / 1000 : Date.parse(event.at) / 1000;
    this.expiring.value = null;
    this.programs.push({ ...event, endedAt });
    if (this.programs.length > MAX_PROGRAMS) this.programs.splice(0, this.programs.length - MAX_PROGRAMS);
    this.memory.times.push(endedAt);
    this.memory.bytes.push(event.used_bytes);
    if (this.memory.times.length > MAX_MEMORY) {
      for (const list of [this.memory.times, this.memory.bytes]) list.splice(0, MAX_MEMORY / 2);
    }
  }

  private takeScalars(event: ScalarsEvent): void {
    this.scalarSteps += 1;
    for (const { key, label, value } of event.values) {
      let curve = this.curves.get(key);
      if (curve === undefined) this.curves.set(key, (curve = new Curve(key, label)));
      curve.label = label;
      const last = curve.steps.at(-1) ?? -Infinity;
      const step = event.sequence ?? this.scalarSteps;
      curve.add(step > last ? step : last + 1, value);
    }
  }

  private scheduleTick(): void {
    if (this.timer !== 0) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.tick.value += 1;
    }, TICK_MS);
  }
}

/** What the page says of the time until a session expires. */
export function untilText(expiresAt: string): string {
  return formatSeconds(Math.max(0, (Date.parse(expiresAt) - Date.now()) / 1000));
}
