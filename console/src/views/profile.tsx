// The profile of a session: as a flame chart, and as a table by op.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson, postJson, sessionPath } from "../api/client";
import type { Profile, ProfileRange, ProfileTotals } from "../api/types";
import { formatBytes, formatCount, formatSeconds } from "../format";
import type { SessionWatch } from "../state/session";
import { depthsOf } from "../timeline";
import { Canvas } from "../widgets/canvas";
import type { Drawing } from "../widgets/canvas";
import { ErrorNote, Segments } from "../widgets/common";
import { Heading, sorted } from "../widgets/virtual";
import type { Sort } from "../widgets/virtual";

const ROW = 22;
const MAX_DEPTH = 24;
const MIN_TEXT_PX = 34;
const FIRST_RANGES = 16;
const DURATIONS = ["1", "5", "20"] as const;
type Duration = (typeof DURATIONS)[number];
type Column = "name" | "category" | "count" | "self" | "total" | "bytes";

export function ProfileSection({ watch }: { watch: SessionWatch }) {
  const [profile, setProfile] = useState<Profile | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [seconds, setSeconds] = useState<Duration>("5");
  const [running, setRunning] = useState(false);
  const alive = useRef(true);
  const read = async () => {
    const found = await getJson<Profile>(sessionPath(watch.id, "/profile?events=true"));
    if (alive.current) setProfile(found.totals.length > 0 ? found : null);
  };
  useEffect(() => {
    read().catch(() => undefined); // without a profile there is none to show
    return () => {
      alive.current = false;
    };
  }, [watch]);
  const run = async (op: string, attrs = {}) => postJson(sessionPath(watch.id, "/programs"), { instructions: [{ op, attrs }] });
  const record = async () => {
    setRunning(true);
    setError(null);
    try {
      await run("start_profile", { profile_memory: true });
      await new Promise((resolve) => setTimeout(resolve, 1000 * Number(seconds)));
      await run("stop_profile");
      await read();
    } catch (problem) {
      if (alive.current) setError(problem as Error);
    } finally {
      if (alive.current) setRunning(false);
    }
  };
  return (
    <article class="card">
      <div class="card-head">
        <h2>Profile</h2>
        <span class="grow" />
        <Segments
          label="Length of the profile"
          value={seconds}
          choices={DURATIONS.map((each) => ({ value: each, label: `${each} s` }))}
          onChange={setSeconds}
        />
        <button type="button" class="primary" disabled={running} onClick={() => void record()}>
          {running ? "Recording…" : "Record"}
        </button>
      </div>
      {error !== null && <ErrorNote error={error} title="The profile cannot be recorded" />}
      {profile === null ? (
        <p class="quiet">Record a profile while the session works: it shows which ops the time goes to. Recording slows ops down a little.</p>
      ) : (
        <>
          {profile.events.length > 0 && <Flame events={profile.events} />}
          {profile.events_dropped > 0 && (
            <p class="hint">{formatCount(profile.events_dropped)} later ranges are part of the table only.</p>
          )}
          <TotalsTable totals={profile.totals} />
        </>
      )}
    </article>
  );
}

interface Window {
  start: number;
  end: number;
}

/** A part from the middle with some outermost ranges: of the whole time, a session may wait for most. */
function typical(events: ProfileRange[], whole: Window): Window {
  const outer = events.filter((each) => each.parent === null).sort((a, b) => a.start_ns - b.start_ns);
  const [first, last] = [outer[Math.floor(outer.length / 2)], outer[Math.floor(outer.length / 2) + FIRST_RANGES]];
  return first === undefined || last === undefined ? whole : { start: first.start_ns, end: last.end_ns };
}

function Flame({ events }: { events: ProfileRange[] }) {
  const whole = useMemo<Window>(
    () => ({
      start: events.reduce((least, each) => Math.min(least, each.start_ns), Infinity),
      end: events.reduce((most, each) => Math.max(most, each.end_ns), -Infinity),
    }),
    [events],
  );
  const depths = useMemo(() => depthsOf(events), [events]);
  const [view, setView] = useState(() => typical(events, whole));
  const [over, setOver] = useState<ProfileRange | null>(null);
  const width = useRef(1);
  useEffect(() => setView(typical(events, whole)), [whole]);
  const rows = Math.min(MAX_DEPTH, 1 + Math.max(0, ...depths.values()));
  const draw = useMemo(
    () => (drawing: Drawing) => {
      width.current = drawing.width;
      drawFlame(drawing, events, depths, view, over);
    },
    [events, depths, view, over],
  );
  const at = (x: number, y: number): ProfileRange | null => {
    const time = view.start + (x / width.current) * (view.end - view.start);
    const row = Math.floor(y / ROW);
    return events.find((each) => depths.get(each.id) === row && each.start_ns <= time && time <= each.end_ns) ?? null;
  };
  const zoomTo = (range: ProfileRange | null) => {
    if (range === null) return setView(whole);
    const margin = (range.end_ns - range.start_ns) * 0.05;
    setView({ start: range.start_ns - margin, end: range.end_ns + margin });
  };
  return (
    <div class="flame">
      <Canvas
        height={rows * ROW}
        label="Flame chart of the profile; the table below has the same times by op"
        draw={draw}
        onMove={(x, y) => setOver(at(x, y))}
        onLeave={() => setOver(null)}
        onPress={(x, y) => zoomTo(at(x, y))}
      />
      <p class="picked">
        {over === null ? (
          <span class="quiet">
            {formatSeconds((view.end - view.start) / 1e9)} are shown. Press a range to zoom in, an empty place to zoom out.
          </span>
        ) : (
          `${over.name}: ${formatSeconds((over.end_ns - over.start_ns) / 1e9)}, ${formatSeconds((over.end_ns - over.start_ns - over.inner_ns) / 1e9)} without what is inside, ${formatBytes(over.bytes)} allocated`
        )}
      </p>
    </div>
  );
}

function drawFlame({ context, width, palette }: Drawing, events: ProfileRange[], depths: Map<number, number>, view: Window, over: ProfileRange | null): void {
  const scale = width / (view.end - view.start);
  const style = getComputedStyle(document.documentElement);
  const lastPixel = new Map<string, number>();
  for (const each of events) {
    if (each.end_ns < view.start || each.start_ns > view.end) continue;
    const depth = depths.get(each.id) ?? 0;
    const left = (each.start_ns - view.start) * scale;
    const wide = Math.max(1, (each.end_ns - each.start_ns) * scale);
    // Of ranges that share a pixel, one is drawn.
    const key = `${depth} ${Math.floor(left)}`;
    if (wide <= 1 && lastPixel.has(key)) continue;
    lastPixel.set(key, 1);
    context.fillStyle = style.getPropertyValue(`--flame-${each.category}`).trim();
    context.fillRect(left, depth * ROW, wide, ROW - 2);
    context.strokeStyle = each === over ? palette.ink : palette.line;
    context.lineWidth = each === over ? 2 : 1;
    if (wide > 3) context.strokeRect(left + 0.5, depth * ROW + 0.5, wide - 1, ROW - 3);
    if (wide < MIN_TEXT_PX) continue;
    context.save();
    context.beginPath();
    context.rect(left, depth * ROW, wide - 3, ROW);
    context.clip();
    context.fillStyle = palette.ink;
    context.fillText(each.name, Math.max(4, left + 4), depth * ROW + ROW / 2 - 1);
    context.restore();
  }
}

function valueOf(row: ProfileTotals, column: Column): string | number {
  switch (column) {
    case "name":
      return row.name;
    case "category":
      return row.category;
    case "count":
      return row.count;
    case "self":
      return row.self_ns;
    case "total":
      return row.total_ns;
    case "bytes":
      return row.self_bytes;
  }
}

function TotalsTable({ totals }: { totals: ProfileTotals[] }) {
  const [sort, setSort] = useState<Sort<Column>>({ column: "self", descending: true });
  const sum = totals.reduce((all, row) => all + row.self_ns, 0) || 1;
  const heading = (column: Column, label: string, numeric = true) => (
    <Heading column={column} label={label} sort={sort} onSort={setSort} numeric={numeric} />
  );
  return (
    <div class="scroll-x">
      <div class="totals" role="table" aria-label="Time by op">
        <div class="row head" role="row">
          {heading("name", "Name", false)}
          {heading("category", "Kind", false)}
          {heading("count", "Count")}
          {heading("self", "Self")}
          {heading("total", "Total")}
          {heading("bytes", "Allocated")}
        </div>
        {sorted(totals, (row) => valueOf(row, sort.column), sort.descending).map((row) => (
          <div class="row" role="row" key={`${row.category} ${row.name} ${row.input_shapes}`}>
            <div role="cell" class="bar-cell">
              <span class="bar" style={{ width: `${(100 * row.self_ns) / sum}%` }} aria-hidden="true" />
              <code>{row.name}</code>
            </div>
            <div role="cell">{row.category}</div>
            <div role="cell" class="numeric">{formatCount(row.count)}</div>
            <div role="cell" class="numeric">{formatSeconds(row.self_ns / 1e9)}</div>
            <div role="cell" class="numeric">{formatSeconds(row.total_ns / 1e9)}</div>
            <div role="cell" class="numeric">{formatBytes(Math.max(0, row.self_bytes))}</div>
          </div>
        ))}
      </div>
    </div>
  );
}
