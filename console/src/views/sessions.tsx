// All sessions of the tenant, updated as they change.

import { useRef, useState } from "preact/hooks";
import { getAll, send, sessionPath } from "../api/client";
import type { Session } from "../api/types";
import { formatAge, formatBytes, formatCount, formatShort, plural } from "../format";
import { usePolled } from "../state/polling";
import { sessionHref } from "../state/route";
import { Dialog, Empty, ErrorNote, Icon, IconButton } from "../widgets/common";
import { Heading, VirtualTable, sorted } from "../widgets/virtual";
import type { Sort } from "../widgets/virtual";
import { NewSession } from "./new_session";

const PERIOD_MS = 2000;
const ROW_HEIGHT = 52;
type Column = "name" | "state" | "device" | "memory" | "rate" | "age" | "durable" | "worker";
/** Programs a second of each session, from its last two counts. */
type Rates = Map<string, number>;

interface Counted {
  at: number;
  programs: number;
}

/** Programs a second since the last call, by session. */
function useRates(): (sessions: Session[]) => Rates {
  const before = useRef(new Map<string, Counted>());
  const rates = useRef<{ of: Session[] | null; found: Rates }>({ of: null, found: new Map() });
  return (sessions) => {
    if (rates.current.of === sessions) return rates.current.found;
    const now = performance.now() / 1000;
    const counts = new Map<string, Counted>();
    const found: Rates = new Map();
    for (const session of sessions) {
      if (session.programs === undefined) continue;
      const last = before.current.get(session.id);
      counts.set(session.id, { at: now, programs: session.programs });
      if (last !== undefined) found.set(session.id, Math.max(0, session.programs - last.programs) / (now - last.at));
    }
    before.current = counts;
    rates.current = { of: sessions, found };
    return found;
  };
}

function matches(session: Session, words: string[]): boolean {
  const text = [session.name, session.id, session.device, session.state, session.worker].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function valueOf(session: Session, column: Column, rates: Rates): string | number | null | undefined {
  switch (column) {
    case "name":
      return session.name ?? session.id;
    case "state":
      return session.state;
    case "device":
      return session.device;
    case "memory":
      return session.used_bytes;
    case "rate":
      return rates.get(session.id);
    case "age":
      return -Date.parse(session.created_at);
    case "durable":
      return Number(session.durable);
    case "worker":
      return session.worker;
  }
}

export function SessionsView() {
  const { data, error, refresh } = usePolled((signal) => getAll<Session>("v1/sessions", signal), PERIOD_MS);
  const [text, setText] = useState("");
  const [sort, setSort] = useState<Sort<Column>>({ column: "age", descending: false });
  const [closing, setClosing] = useState<Session | null>(null);
  const ratesOf = useRates();
  const sessions = data ?? [];
  const rates = ratesOf(sessions);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = sorted(
    sessions.filter((session) => matches(session, words)),
    (session) => valueOf(session, sort.column, rates),
    sort.descending,
  );
  const heading = (column: Column, label: string, numeric = false) => (
    <Heading column={column} label={label} sort={sort} onSort={setSort} numeric={numeric} />
  );
  return (
    <section class="page sessions" aria-labelledby="sessions-title">
      <div class="page-head">
        <h1 id="sessions-title">Sessions</h1>
        <span class="quiet">{data === null ? "" : plural(sessions.length, "session")}</span>
        <label class="search">
          <Icon name="search" />
          <input
            type="search"
            placeholder="Search name, id, device, worker"
            aria-label="Search sessions"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        {sessions.length > 0 && <NewSession />}
      </div>
      {error !== null && data === null && <ErrorNote error={error} title="The sessions cannot be read" />}
      {data !== null && sessions.length === 0 && <NoSessions />}
      {sessions.length > 0 && shown.length === 0 && <p class="quiet">No session matches “{text}”.</p>}
      {shown.length > 0 && (
        <VirtualTable
          rows={shown}
          rowHeight={ROW_HEIGHT}
          keyOf={(session) => session.id}
          label="Sessions"
          class="sessions-table"
          header={
            <>
              {heading("name", "Name")}
              {heading("state", "State")}
              {heading("device", "Device")}
              {heading("memory", "Memory", true)}
              {heading("rate", "Programs / s", true)}
              {heading("age", "Age", true)}
              {heading("durable", "Durable")}
              {heading("worker", "Worker")}
              <div role="columnheader">
                <span class="unseen">Close</span>
              </div>
            </>
          }
          render={(session) => <SessionRow session={session} rate={rates.get(session.id)} onClose={() => setClosing(session)} />}
        />
      )}
      {closing !== null && <CloseDialog session={closing} onDone={() => { setClosing(null); refresh(); }} />}
    </section>
  );
}

function NoSessions() {
  return (
    <Empty title="No sessions yet">
      <p>
        <NewSession />
      </p>
      <p>
        A session appears here as soon as a client creates one, for example in Python. It ends with its script, so keep Python
        open (<code>python -i</code>). With <code>retain_graph=True</code> the graph stays after <code>backward</code>, so that this page
        can step through it:
      </p>
      <pre>
        {`import telegrad as tg

tg.connect("${new URL("./", document.baseURI).href.replace(/\/$/, "")}")
x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = (x * x).sum()
y.backward(retain_graph=True)
print(x.grad)`}
      </pre>
    </Empty>
  );
}

interface RowProps {
  session: Session;
  rate: number | undefined;
  onClose: () => void;
}

function SessionRow({ session, rate, onClose }: RowProps) {
  const age = (Date.now() - Date.parse(session.created_at)) / 1000;
  const state = session.state ?? "idle";
  return (
    <>
      <div role="cell" class="name">
        <a href={sessionHref(session.id)}>{session.name ?? "unnamed"}</a>
        <code class="quiet">{session.id.slice(0, 12)}</code>
      </div>
      <div role="cell" class="state">
        <span class={`dot ${state}`} aria-hidden="true" />
        {session.state ?? "–"}
      </div>
      <div role="cell" class="device">{session.device}</div>
      <div role="cell" class="numeric memory">{formatBytes(session.used_bytes)}</div>
      <div role="cell" class="numeric rate" title={session.programs === undefined ? "" : `${formatCount(session.programs)} programs`}>
        {rate === undefined ? "–" : formatShort(rate)}
      </div>
      <div role="cell" class="numeric age" title={new Date(session.created_at).toLocaleString("en-GB")}>{formatAge(age)}</div>
      <div role="cell" class="durable">{session.durable ? "durable" : "–"}</div>
      <div role="cell" class="worker">{session.worker ?? "–"}</div>
      <div role="cell" class="last">
        <IconButton icon="close" label={`Close session ${session.name ?? session.id}`} onClick={onClose} />
      </div>
    </>
  );
}

/** Asks before a session is closed, since its tensors are lost. */
export function CloseDialog({ session, onDone }: { session: Session; onDone: (closed: boolean) => void }) {
  const [error, setError] = useState<Error | null>(null);
  const close = async () => {
    try {
      await send(sessionPath(session.id), { method: "DELETE" });
      onDone(true);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Dialog title={`Close “${session.name ?? session.id}”?`} onClose={() => onDone(false)}>
      <p>
        Its tensors and its graph are freed, and a program that runs is cancelled.
        {session.durable ? " It is durable: what the server stored of it is deleted, too." : ""} This cannot be undone.
      </p>
      {error !== null && <ErrorNote error={error} />}
      <div class="actions">
        <button type="button" onClick={() => onDone(false)}>
          Keep it
        </button>
        <button type="button" class="danger" onClick={() => void close()}>
          Close the session
        </button>
      </div>
    </Dialog>
  );
}
