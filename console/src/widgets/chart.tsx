// A curve over steps or time, drawn by uPlot.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { onPaletteChange } from "../graph/colour";
import { clockTime, formatCount, formatNumber } from "../format";

const HEIGHT = 210;

export interface Line {
  label: string;
  /** The name of a colour of the style sheet. */
  colour: string;
  width: number;
  dash?: number[];
  alpha?: number;
}

interface Props {
  label: string;
  lines: Line[];
  /** The abscissae, and the values of each line; NaN where there are none. */
  data: number[][];
  log?: boolean;
  time?: boolean;
  format?: (value: number) => string;
}

function clock(seconds: number): string {
  return clockTime(new Date(seconds * 1000));
}

function cssColour(name: string, alpha = 1): string {
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const hex = Math.round(alpha * 255).toString(16).padStart(2, "0");
  return value.length === 7 ? value + hex : value;
}

function optionsOf({ lines, log = false, time = false, format = (value) => formatNumber(value) }: Props, width: number): uPlot.Options {
  const axis = { stroke: cssColour("ink-3"), grid: { stroke: cssColour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  return {
    width,
    height: HEIGHT,
    scales: { x: { time }, y: { distr: log ? 3 : 1 } },
    axes: [{ ...axis, ...(time ? { values: (_: uPlot, splits: number[]) => splits.map(clock), space: 72 } : {}) }, { ...axis, size: 62, values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))) }],
    series: [
      { label: time ? "time" : "step", value: (_, value) => (value === null ? "–" : time ? clock(value) : formatCount(value)) },
      ...lines.map((line) => ({
        label: line.label,
        stroke: cssColour(line.colour, line.alpha),
        width: line.width,
        ...(line.dash === undefined ? {} : { dash: line.dash }),
        points: { show: (drawn: uPlot) => drawn.data[0].length === 1, size: 7 }, // a line needs two
        value: (_: uPlot, value: number | null) => (value === null ? "–" : format(value)),
      })),
    ],
    legend: { live: true },
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
  };
}

/** What uPlot draws: gaps for values that are not finite, or not positive on a logarithmic scale. */
function drawable(data: number[][], log: boolean): uPlot.AlignedData {
  const [x = [], ...lines] = data;
  const cleaned = lines.map((line) => line.map((value) => (Number.isFinite(value) && (!log || value > 0) ? value : null)));
  return [x, ...cleaned] as uPlot.AlignedData;
}

export function Chart(props: Props) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { data, log = false, time = false, lines, label } = props;
  const shape = `${log} ${time} ${lines.map((line) => line.label).join()}`;
  useEffect(() => {
    const container = element.current;
    if (container === null) return;
    const create = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(props, Math.max(200, container.clientWidth)), drawable(data, log), container);
    };
    create();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(200, container.clientWidth), height: HEIGHT }));
    observer.observe(container);
    const stop = onPaletteChange(create);
    return () => {
      stop();
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(drawable(data, log)), [data, log]);
  const isEmpty = (data[0]?.length ?? 0) === 0;
  return (
    <>
      <div class="chart" ref={element} role="img" aria-label={label} hidden={isEmpty} />
      {isEmpty && <p class="quiet">No samples yet.</p>}
    </>
  );
}
