// One session that somebody watches: its state, and what its events tell. Kept while the views of the session change.

import { batch, signal } from "@preact/signals";
import { Problem, getJson, reconnects, sessionPath } from "../api/client";
import { listen } from "../api/events";
import type { GraphEvent, ProgramEvent, Real, ScalarsEvent, ServerEvent, SessionStatus } from "../api/types";
import { formatSeconds, real } from "../format";

const MAX_PROGRAMS = 2000;
const MAX_MEMORY = 4000;
/** How often the views learn what events told: events may be far more frequent. */
const TICK_MS = 250;
const RATE_WINDOW_S = 10;

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

export class SessionWatch {
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
    this.stopReconnects = reconnects.subscribe(() => void this.readStatus());
  }

  close(): void {
    this.controller.abort();
    this.stopReconnects();
    clearTimeout(this.timer);
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
    if (problem.status === 404 && this.status.peek() !== null) this.ended.value ??= "it is no longer on the server";
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
  }

  private takeProgram(event: ProgramEvent): void {
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
