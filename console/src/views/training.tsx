// Scalars over the steps, steps a second and memory, as they arrive.

import { useMemo, useState } from "preact/hooks";
import { perSecond, smoothed } from "../curves";
import { formatBytes, formatCount, formatNumber, plural } from "../format";
import type { Curve, SessionWatch } from "../state/session";
import { Chart } from "../widgets/chart";
import type { Line } from "../widgets/chart";
import { Empty } from "../widgets/common";

const FIRST_CURVES = 12;
const SMOOTH: Line[] = [
  { label: "value", colour: "accent", width: 1, alpha: 0.35 },
  { label: "smoothed", colour: "accent", width: 2 },
];
const PLAIN: Line[] = [{ label: "value", colour: "accent", width: 1.8 }];
const RATE: Line[] = [{ label: "programs / s", colour: "warm", width: 1.8 }];
const MEMORY: Line[] = [{ label: "memory", colour: "accent", width: 1.8 }];

export function TrainingView({ watch }: { watch: SessionWatch }) {
  const [weight, setWeight] = useState(0.6);
  const [log, setLog] = useState(false);
  const [all, setAll] = useState(false);
  const tick = watch.tick.value;
  const curves = [...watch.curves.values()];
  const shown = all ? curves : curves.slice(0, FIRST_CURVES);
  return (
    <section class="page training">
      <div class="card-head controls">
        <label class="check">
          Smoothing
          <input
            type="range"
            min={0}
            max={0.99}
            step={0.01}
            value={weight}
            onInput={(event) => setWeight(Number(event.currentTarget.value))}
          />
          <output class="numeric">{weight.toFixed(2)}</output>
        </label>
        <label class="check">
          <input type="checkbox" checked={log} onChange={(event) => setLog(event.currentTarget.checked)} />
          Logarithmic scale
        </label>
        <span class="quiet hint">Drag across a curve to zoom in; press twice to zoom out.</span>
      </div>
      <div class="curves">
        {curves.length === 0 && (
          <article class="card no-curve">
            <Empty title="No scalars yet">
              <p>
                Each number that a program fetches becomes a curve, such as a loss of which a training loop prints{" "}
                <code>loss.item()</code>. Curves begin when this page is opened.
              </p>
            </Empty>
          </article>
        )}
        {shown.map((curve) => (
          <CurveCard key={curve.key} curve={curve} weight={weight} log={log} tick={tick} />
        ))}
        <RateCard watch={watch} tick={tick} />
        <MemoryCard watch={watch} tick={tick} />
      </div>
      {curves.length > shown.length && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {curves.length} curves
        </button>
      )}
    </section>
  );
}

interface CurveProps {
  curve: Curve;
  weight: number;
  log: boolean;
  tick: number;
}

function CurveCard({ curve, weight, log, tick }: CurveProps) {
  const data = useMemo(() => {
    const raw = [...curve.values];
    return weight === 0 ? [[...curve.steps], raw] : [[...curve.steps], raw, smoothed(raw, weight)];
  }, [curve, weight, tick]);
  const last = curve.values.at(-1);
  return (
    <article class="card">
      <div class="card-head">
        <h2>{curve.label}</h2>
        <span class="grow" />
        <span class="last-value">{formatNumber(last === undefined ? null : last)}</span>
      </div>
      <Chart label={`${curve.label} over the steps`} lines={weight === 0 ? PLAIN : SMOOTH} data={data} log={log} />
      {curve.bad > 0 && <p class="note bad">{plural(curve.bad, "value")} NaN or infinite; the curve has gaps there.</p>}
    </article>
  );
}

/** A count; nothing for what lies between two, on an axis. */
function wholeCount(value: number): string {
  return Number.isInteger(value) ? formatCount(value) : "";
}

function RateCard({ watch, tick }: { watch: SessionWatch; tick: number }) {
  const data = useMemo(() => {
    const { seconds, counts } = perSecond(watch.programs.map((program) => program.endedAt), Date.now() / 1000);
    return [seconds.slice(0, -1), counts.slice(0, -1)]; // the last second is not over
  }, [watch, tick]);
  return (
    <article class="card">
      <h2>Programs a second</h2>
      <Chart label="Programs a second over time" lines={RATE} data={data} time format={wholeCount} />
    </article>
  );
}

function MemoryCard({ watch, tick }: { watch: SessionWatch; tick: number }) {
  const data = useMemo(() => [[...watch.memory.times], [...watch.memory.bytes]], [watch, tick]);
  return (
    <article class="card">
      <h2>Memory</h2>
      <Chart label="Memory of the session over time" lines={MEMORY} data={data} time format={(value) => formatBytes(value)} />
    </article>
  );
}
