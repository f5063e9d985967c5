// One session: what it is, and the views of it.

import { useEffect, useMemo, useState } from "preact/hooks";
import { Problem } from "../api/client";
import { formatBytes, formatCount, formatShort } from "../format";
import { SESSION_TABS, sessionHref } from "../state/route";
import type { SessionTab } from "../state/route";
import { SessionWatch, untilText } from "../state/session";
import { Empty, ErrorNote, Metric } from "../widgets/common";
import { deferred } from "../widgets/deferred";
import { CloseDialog } from "./sessions";

const GraphView = deferred(() => import("./graph").then((module) => module.GraphView));
const TrainingView = deferred(() => import("./training").then((module) => module.TrainingView));
const ProgramsView = deferred(() => import("./programs").then((module) => module.ProgramsView));
const TryView = deferred(() => import("./try").then((module) => module.TryView));
const LABELS: Record<SessionTab, string> = { graph: "Graph", training: "Training", programs: "Programs", try: "Try it" };

function useWatch(id: string): SessionWatch {
  const watch = useMemo(() => new SessionWatch(id), [id]);
  useEffect(() => () => watch.close(), [watch]);
  return watch;
}

export function SessionView({ id, tab }: { id: string; tab: SessionTab }) {
  const watch = useWatch(id);
  const status = watch.status.value;
  const title = status?.name ?? (status === null ? id.slice(0, 12) : "Unnamed session");
  useEffect(() => {
    document.title = `${title} · Telegrad`;
  }, [title]);
  const error = watch.error.value;
  if (error !== null && status === null) return <NotThere id={id} error={error} />;
  return (
    <section class="session" aria-labelledby="session-title">
      <SessionHead watch={watch} title={title} tab={tab} />
      <Notices watch={watch} />
      {tab === "graph" && <GraphView watch={watch} />}
      {tab === "training" && <TrainingView watch={watch} />}
      {tab === "programs" && <ProgramsView watch={watch} />}
      {tab === "try" && <TryView watch={watch} />}
    </section>
  );
}

function NotThere({ id, error }: { id: string; error: Error }) {
  const isUnknown = error instanceof Problem && error.isUnknownSession;
  return (
    <Empty title={isUnknown ? "There is no such session" : "The session cannot be read"}>
      <p>
        {isUnknown ? (
          <>
            The server has no session <code>{id}</code> of yours. It may have ended, or the server restarted.
          </>
        ) : (
          error.message
        )}
      </p>
      <p>
        <a href="#/sessions">All sessions</a>
      </p>
    </Empty>
  );
}

function SessionHead({ watch, title, tab }: { watch: SessionWatch; title: string; tab: SessionTab }) {
  const [closing, setClosing] = useState(false);
  const status = watch.status.value;
  void watch.tick.value;
  const last = watch.programs.at(-1);
  const ended = watch.ended.value !== null;
  return (
    <div class="session-head">
      <div class="session-name">
        <h1 id="session-title">{title}</h1>
        <span class="quiet mono">{watch.id.slice(0, 12)}</span>
        <StreamState watch={watch} />
      </div>
      <dl class="metrics">
        <Metric label="device" value={status?.device ?? "–"} />
        <Metric label="memory" value={formatBytes(last?.used_bytes ?? status?.used_bytes)} />
        <Metric label="programs / s" value={formatShort(watch.rate())} />
        <Metric label="tensors" value={status === null ? "–" : formatCount(status.tensors)} />
        <Metric label="durable" value={status === null ? "–" : status.durable ? "yes" : "no"} />
      </dl>
      <nav class="tabs" aria-label="Views of the session">
        {SESSION_TABS.map((each) => (
          <a key={each} href={sessionHref(watch.id, each)} aria-current={each === tab ? "page" : undefined}>
            {LABELS[each]}
          </a>
        ))}
        {status !== null && !ended && (
          <button type="button" class="link close" onClick={() => setClosing(true)}>
            Close session
          </button>
        )}
      </nav>
      {closing && status !== null && (
        <CloseDialog
          session={status}
          onDone={(closed) => {
            setClosing(false);
            if (closed) location.hash = "#/sessions";
          }}
        />
      )}
    </div>
  );
}

function StreamState({ watch }: { watch: SessionWatch }) {
  if (watch.ended.value !== null) return <StateBadge dot="ended" text="ended" />;
  switch (watch.stream.value) {
    case "open":
      return <StateBadge dot="running" text="live" />;
    case "opening":
      return <StateBadge dot="unloaded" text="connecting" />;
    default:
      return <StateBadge dot="waiting" text="not connected" />;
  }
}

function StateBadge({ dot, text }: { dot: string; text: string }) {
  return (
    <span class="badge" role="status">
      <span class={`dot ${dot}`} aria-hidden="true" />
      {text}
    </span>
  );
}

function Notices({ watch }: { watch: SessionWatch }) {
  const ended = watch.ended.value;
  const expiring = watch.expiring.value;
  const error = watch.error.value;
  return (
    <>
      {ended !== null && (
        <p class="banner" role="alert">
          This session ended: {ended}. What is shown is what the page saw last. <a href="#/sessions">All sessions</a>
        </p>
      )}
      {ended === null && expiring !== null && (
        <p class="banner" role="status">
          Without a request, this session ends in {untilText(expiring)}.
        </p>
      )}
      {watch.lost.value > 0 && (
        <p class="banner" role="status">
          The session was faster than this page: {formatCount(watch.lost.value)} events are missing in the curves.
          <button type="button" class="link" onClick={() => (watch.lost.value = 0)}>
            Dismiss
          </button>
        </p>
      )}
      {error instanceof Problem && ended === null && <ErrorNote error={error} />}
    </>
  );
}
