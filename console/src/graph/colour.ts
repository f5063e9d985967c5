// The colours of boxes: how large gradients are, on a logarithmic scale.

import type { Box } from "../api/types";
import { isBad, real } from "../format";

type Rgb = [number, number, number];

export interface Palette {
  paper: string;
  surface: string;
  ink: string;
  quiet: string;
  line: string;
  edge: string;
  accent: string;
  /** From the smallest gradient to the largest. */
  scale: Rgb[];
  /** Of a gradient with NaN or infinite elements. */
  bad: Rgb;
  /** Without a gradient, by the kind of box. */
  plain: Record<Box["kind"], Rgb>;
}

export const LIGHT: Palette = {
  paper: "#faf9f6",
  surface: "#ffffff",
  ink: "#1b232e",
  quiet: "#646e7b",
  line: "#c9c4b8",
  edge: "#a9a79e",
  accent: "#0b6e69",
  scale: [[253, 240, 213], [250, 205, 138], [240, 150, 76], [214, 86, 49], [153, 27, 45]],
  bad: [106, 27, 154],
  plain: { op: [255, 255, 255], leaf: [222, 239, 236], tensor: [238, 236, 229], group: [255, 255, 255] },
};

export const DARK: Palette = {
  paper: "#12161b",
  surface: "#1a2027",
  ink: "#e8ebef",
  quiet: "#94a0ad",
  line: "#3d4753",
  edge: "#5b6673",
  accent: "#5cc9c0",
  scale: [[58, 45, 38], [112, 66, 34], [180, 92, 38], [236, 138, 62], [255, 201, 120]],
  bad: [190, 120, 235],
  plain: { op: [32, 39, 47], leaf: [22, 56, 57], tensor: [42, 46, 50], group: [32, 39, 47] },
};

export interface Range {
  min: number;
  max: number;
}

/** The smallest and the largest finite gradient norm above zero. Null without any. */
export function gradientRange(boxes: Iterable<Box>): Range | null {
  let range: Range | null = null;
  for (const box of boxes) {
    const norm = real(box.grad_norm);
    if (!(norm > 0) || norm === Infinity) continue;
    range = range === null ? { min: norm, max: norm } : { min: Math.min(range.min, norm), max: Math.max(range.max, norm) };
  }
  return range;
}

/** Where a norm lies in a range, from 0 to 1, by its logarithm. */
export function shareOf(norm: number, range: Range): number {
  if (norm <= range.min) return 0;
  if (range.max <= range.min) return 0.5;
  return Math.min(1, Math.log(norm / range.min) / Math.log(range.max / range.min));
}

export function scaleColour(palette: Palette, share: number): Rgb {
  const position = share * (palette.scale.length - 1);
  const index = Math.min(palette.scale.length - 2, Math.floor(position));
  const [low, high] = [palette.scale[index] ?? palette.bad, palette.scale[index + 1] ?? palette.bad];
  const part = position - index;
  return [0, 1, 2].map((channel) => Math.round((low[channel] ?? 0) * (1 - part) + (high[channel] ?? 0) * part)) as Rgb;
}

export interface BoxColours {
  fill: string;
  ink: string;
}

export function boxColours(box: Box, range: Range | null, palette: Palette): BoxColours {
  if (isBad(box.grad_norm)) return readable(palette.bad);
  const norm = real(box.grad_norm);
  if (Number.isNaN(norm) || range === null) return readable(palette.plain[box.kind]);
  return readable(scaleColour(palette, shareOf(norm, range)));
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r},${g},${b})`;
}

/** A fill with the ink, dark or light, that has the higher contrast on it. */
function readable(fill: Rgb): BoxColours {
  const light = luminance(fill);
  const onDark = 1.05 / (light + 0.05);
  const onLight = (light + 0.05) / (luminance([22, 28, 36]) + 0.05);
  return { fill: css(fill), ink: onDark > onLight ? "#ffffff" : "#161c24" };
}

/** The relative luminance of WCAG 2. */
function luminance(colour: Rgb): number {
  const [r = 0, g = 0, b = 0] = colour.map((channel) => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const dark = matchMedia("(prefers-color-scheme: dark)");

export function currentPalette(): Palette {
  return dark.matches ? DARK : LIGHT;
}

/** Calls back when the system turns dark or light. Returns what ends that. */
export function onPaletteChange(callback: () => void): () => void {
  dark.addEventListener("change", callback);
  return () => dark.removeEventListener("change", callback);
}
