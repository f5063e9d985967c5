// The programs of a session: when they ran, why they were slow, and the profile.

import { useMemo, useRef, useState } from "preact/hooks";
import { getJson, sessionPath } from "../api/client";
import type { CompiledProgram, Page } from "../api/types";
import { clockTime, formatBytes, formatCount, formatSeconds } from "../format";
import { usePolled } from "../state/polling";
import type { RunProgram, SessionWatch } from "../state/session";
import { sharesOf } from "../timeline";
import { Canvas } from "../widgets/canvas";
import type { Drawing } from "../widgets/canvas";
import { Empty, Metric, Segments } from "../widgets/common";
import { ProfileSection } from "./profile";

const SPANS = [5, 30, 120] as const;
const HEIGHT = 118;
const ROWS = { queued: 22, running: 52 };
const ROW_HEIGHT = 24;
const COMPILED_MS = 5000;
const RECENT = 12;
/** The longest gap, in pixels, between the pointer and a program that it means. */
const REACH = 6;

export function ProgramsView({ watch }: { watch: SessionWatch }) {
  void watch.tick.value;
  return (
    <section class="page">
      {watch.programs.length === 0 ? (
        <Empty title="No program ran yet">
          <p>Programs appear as they run, from the moment when this page was opened.</p>
        </Empty>
      ) : (
        <Timeline watch={watch} />
      )}
      <Recurring watch={watch} />
      <ProfileSection watch={watch} />
    </section>
  );
}

function Timeline({ watch }: { watch: SessionWatch }) {
  const [span, setSpan] = useState<string>("30");
  const [paused, setPaused] = useState<number | null>(null);
  const [picked, setPicked] = useState<RunProgram | null>(null);
  const tick = watch.tick.value;
  const end = paused ?? watch.programs.at(-1)?.endedAt ?? 0;
  const start = end - Number(span);
  const width = useRef(1);
  const programs = useMemo(() => watch.programs.filter((program) => program.endedAt >= start && program.endedAt <= end), [tick, start, end]);
  const draw = useMemo(
    () => (drawing: Drawing) => {
      width.current = drawing.width;
      drawTimeline(drawing, programs, start, end, picked);
    },
    [programs, start, end, picked],
  );
  const pick = (x: number) => {
    const time = start + (x / width.current) * (end - start);
    const reach = (REACH / width.current) * (end - start);
    const near = programs.filter((program) => program.endedAt + reach >= time && program.endedAt - program.seconds - (program.queued_s ?? 0) - reach <= time);
    setPicked(near.at(-1) ?? null);
  };
  const shares = sharesOf(programs, Math.max(start, programs[0]?.endedAt ?? start), end);
  return (
    <article class="card">
      <div class="card-head">
        <h2>Timeline</h2>
        <span class="grow" />
        <Segments
          label="Length of the timeline"
          value={span}
          choices={SPANS.map((seconds) => ({ value: String(seconds), label: formatSeconds(seconds) }))}
          onChange={setSpan}
        />
        <button type="button" onClick={() => setPaused(paused === null ? end : null)}>
          {paused === null ? "Pause" : "Follow"}
        </button>
      </div>
      <Canvas
        height={HEIGHT}
        label={`${programs.length} programs between ${clockTime(new Date(start * 1000))} and ${clockTime(new Date(end * 1000))}`}
        draw={draw}
        onMove={pick}
      />
      <p class="keys">
        <span class="swatch queued" /> queued <span class="swatch run" /> interpreted <span class="swatch planned" /> planned{" "}
        <span class="swatch failed" /> failed
      </p>
      {shares !== null && (
        <dl class="metrics">
          <Metric label="running" value={percent(shares.running)} />
          <Metric label="queued" value={percent(shares.queued)} />
          <Metric label="no program: the client was busy" value={percent(shares.client)} />
        </dl>
      )}
      {picked !== null && <Picked program={picked} />}
      <Recent programs={watch.programs.slice(-RECENT).reverse()} />
    </article>
  );
}

function percent(share: number): string {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

function drawTimeline({ context, width, palette }: Drawing, programs: RunProgram[], start: number, end: number, picked: RunProgram | null): void {
  const x = (time: number) => ((time - start) / (end - start)) * width;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  context.fillStyle = palette.quiet;
  context.fillText("queue", 0, 10);
  for (const program of programs) {
    const began = program.endedAt - program.seconds;
    const [left, right] = [x(began), x(program.endedAt)];
    const queued = program.queued_s ?? 0;
    if (queued > 0) {
      context.fillStyle = colour("line-strong");
      context.fillRect(x(began - queued), ROWS.queued, Math.max(1, left - x(began - queued)), ROW_HEIGHT);
    }
    context.fillStyle = colour(program.error !== null ? "bad" : program.planned === true ? "accent" : "warm");
    context.fillRect(left, ROWS.running, Math.max(1, right - left), ROW_HEIGHT);
    if (program === picked) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 2;
      context.strokeRect(left - 2, ROWS.running - 2, Math.max(1, right - left) + 4, ROW_HEIGHT + 4);
    }
  }
  context.fillStyle = palette.quiet;
  for (let index = 0; index <= 4; index += 1) {
    const time = start + ((end - start) * index) / 4;
    context.textAlign = index === 0 ? "left" : index === 4 ? "right" : "center";
    context.fillText(clockTime(new Date(time * 1000)), (width * index) / 4, HEIGHT - 10);
  }
  context.textAlign = "left";
  context.strokeStyle = palette.line;
  context.lineWidth = 1;
  context.strokeRect(0, ROWS.running + ROW_HEIGHT + 6, width, 0.5);
}

function Picked({ program }: { program: RunProgram }) {
  return (
    <p class="picked" role="status">
      Program {program.sequence ?? ""} {program.kind ?? ""}: {formatCount(program.instructions)} instructions,{" "}
      {formatSeconds(program.seconds)} running, {formatSeconds(program.queued_s ?? 0)} queued, {formatBytes(program.used_bytes)} after it
      {program.error !== null && `, failed: ${program.error}`}
    </p>
  );
}

function Recent({ programs }: { programs: RunProgram[] }) {
  return (
    <details>
      <summary>{programs.length === 1 ? "The last program" : `The last ${programs.length} programs`}</summary>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              <th>Ended</th>
              <th>Kind</th>
              <th class="numeric">Instructions</th>
              <th class="numeric">Queued</th>
              <th class="numeric">Ran</th>
              <th class="numeric">Memory</th>
              <th>Result</th>
            </tr>
          </thead>
          <tbody>
            {programs.map((program) => (
              <tr key={`${program.sequence} ${program.endedAt}`}>
                <td>{clockTime(new Date(program.endedAt * 1000))}</td>
                <td>{program.kind ?? "program"}</td>
                <td class="numeric">{formatCount(program.instructions)}</td>
                <td class="numeric">{formatSeconds(program.queued_s ?? 0)}</td>
                <td class="numeric">{formatSeconds(program.seconds)}</td>
                <td class="numeric">{formatBytes(program.used_bytes)}</td>
                <td>{program.error ?? "ok"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** The mean seconds of the programs with a digest that the page saw. */
function meanSeconds(programs: RunProgram[], digest: string): number {
  const known = programs.filter((program) => program.digest === digest);
  return known.length === 0 ? NaN : known.reduce((sum, program) => sum + program.seconds, 0) / known.length;
}

function Recurring({ watch }: { watch: SessionWatch }) {
  const { data } = usePolled(
    (signal) => getJson<Page<CompiledProgram>>(sessionPath(watch.id, "/compiled?limit=64"), signal),
    COMPILED_MS,
    watch.id,
  );
  const items = [...(data?.items ?? [])].sort((a, b) => b.runs - a.runs);
  if (items.length === 0) return null;
  return (
    <article class="card">
      <h2>Why a program is slow</h2>
      <p class="quiet">
        A program that recurs is planned: it then runs as one list of NumPy calls, several times faster than one instruction after
        the other. The last column says what stands in the way.
      </p>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              <th>Program</th>
              <th class="numeric">Instructions</th>
              <th class="numeric">Runs</th>
              <th class="numeric">Planned</th>
              <th class="numeric">Mean time</th>
              <th>Why its last run was not planned</th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.digest}>
                <td>
                  <code>{each.digest.slice(0, 8)}</code>
                </td>
                <td class="numeric">{formatCount(each.instructions)}</td>
                <td class="numeric">{formatCount(each.runs)}</td>
                <td class="numeric">{each.runs === 0 ? "–" : percent(each.planned_runs / each.runs)}</td>
                <td class="numeric">{formatSeconds(meanSeconds(watch.programs, each.digest))}</td>
                <td>{each.reason ?? "it was planned"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </article>
  );
}
