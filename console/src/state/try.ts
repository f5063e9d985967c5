// What somebody has written in "Try it", and what came of it. Kept while the page is open, by session.

import { computed, signal } from "@preact/signals";
import { Problem, postJson, send, sessionPath } from "../api/client";
import type { OpEntry } from "../api/types";
import { effectsOf, inTheWay } from "../program";
import type { Fields, Request } from "../request";

const EXAMPLE = `{
  "instructions": [
    {"op": "tensor", "outputs": ["try_x"], "attrs": {"data": [1.0, 2.0, 3.0], "requires_grad": true}},
    {"op": "mul", "inputs": ["try_x", "try_x"], "outputs": ["try_y"]},
    {"op": "sum", "inputs": ["try_y"], "outputs": ["try_loss"]},
    {"op": "backward", "inputs": [["try_loss"]], "attrs": {"retain_graph": true}},
    {"op": "grad_of", "inputs": ["try_x"], "outputs": ["try_grad"]},
    {"op": "fetch", "inputs": [["try_loss", "try_grad"]]}
  ]
}`;

export interface TryResult {
  answer: unknown;
  error: Error | null;
  seconds: number;
  /** What was freed before. */
  freed: readonly string[];
}

export class TryState {
  readonly mode = signal<"op" | "program">("op");
  /** The text of the program. */
  readonly program = signal(EXAMPLE);
  /** The form of one op. */
  readonly text = signal("");
  readonly chosen = signal<OpEntry | null>(null);
  readonly fields = signal<Fields>({});
  readonly outputs = signal("");
  /** What is sent by Run. Null while it cannot be. */
  readonly request = signal<Request | null>(null);
  /** The op whose documentation is shown. */
  readonly entry = signal<OpEntry | null>(null);
  readonly result = signal<TryResult | null>(null);
  readonly running = signal(false);
  /** Whether a program frees what is in its way. */
  readonly frees = signal(true);
  /** The ids that programs of the box made. Somebody else may have freed them. */
  private readonly own = signal<readonly string[]>([]);
  /** Those of them that the program would be freed of. */
  readonly inTheWay = computed(() => {
    const request = this.request.value;
    return this.mode.value === "op" || request === null ? [] : inTheWay(this.own.value, request.body);
  });

  constructor(private readonly session: string) {}

  async run(): Promise<void> {
    const request = this.request.value;
    if (request === null || this.running.value) return;
    const isProgram = this.mode.value === "program";
    const freed: string[] = [];
    let [answer, error]: [unknown, Error | null] = [null, null];
    this.running.value = true;
    const started = performance.now();
    try {
      for (const id of this.frees.value ? this.inTheWay.value : []) if (await this.free(id)) freed.push(id);
      answer = await postJson<unknown>(sessionPath(this.session, request.path), request.body);
      this.note(request, Infinity, isProgram);
    } catch (problem) {
      error = problem as Error;
      const progress = error instanceof Problem ? error.document["progress"] : null;
      const { ran = 0, rolled_back } = Object(progress) as { ran?: number; rolled_back?: boolean };
      this.note(request, rolled_back ? 0 : ran, isProgram);
    }
    this.result.value = { answer, error, seconds: (performance.now() - started) / 1000, freed };
    this.running.value = false;
  }

  /** Take down whose the ids are after so many instructions have run: those of the form of one op are the user's. */
  private note({ path, body }: Request, ran: number, isProgram: boolean): void {
    const { made, freed } = effectsOf(path === "/programs" ? body : { instructions: [body] }, ran);
    const others = this.own.value.filter((id) => !made.includes(id) && !freed.includes(id));
    this.own.value = isProgram ? [...others, ...made] : others;
  }

  /** Free an id, and forget it. Returns whether it was still there. */
  private async free(id: string): Promise<boolean> {
    let isThere = true;
    try {
      await send(sessionPath(this.session, `/tensors/${encodeURIComponent(id)}`), { method: "DELETE" });
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 404) throw error;
      isThere = false;
    }
    this.own.value = this.own.value.filter((each) => each !== id);
    return isThere;
  }
}

const states = new Map<string, TryState>();

export function tryOf(session: string): TryState {
  let state = states.get(session);
  if (state === undefined) states.set(session, (state = new TryState(session)));
  return state;
}
