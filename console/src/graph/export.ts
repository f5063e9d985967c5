// Pictures of a whole graph as files.

import { formatNumber } from "../format";
import { css, scaleColour } from "./colour";
import type { Palette } from "./colour";
import type { DrawnBox, Picture } from "./picture";
import { middleOf, pathThrough } from "../layout/geometry";
import type { Direction, Point } from "../layout/geometry";

const MARGIN = 24;
/** The most pixels of a side of a PNG, which browsers can still draw. */
const MAX_SIDE = 8192;
const FONT = "system-ui, sans-serif";
/** The length of an arrow's head. */
const HEAD = 11;
const LEGEND = { height: 56, ramp: 160 };
const STOPS = [0, 0.25, 0.5, 0.75, 1];

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

interface Svg {
  text: string;
  width: number;
  height: number;
}

/** What a picture shows besides the graph. */
export interface Caption {
  title: string;
  /** The box of the current step of a backward pass. */
  current: string | null;
  /** The boxes and edges to which its gradients flow, with what is written on the edges. */
  marks: ReadonlyMap<string, string>;
}

/** Where an edge that comes from a point touches a box, or is some way off it. */
function border(box: DrawnBox, from: Point, direction: Direction, gap = 0): Point {
  const [axis, side] = direction === "down" ? (["y", "height"] as const) : (["x", "width"] as const);
  const way = from[axis] < box[axis] ? -1 : 1;
  return { x: box.x, y: box.y, [axis]: box[axis] + way * (box[side] / 2 + gap) };
}

/** Text on an edge, with the colour of the ground around it, so that it can be read. */
function textOn(text: string, { x, y }: Point, palette: Palette, ink: string): string {
  const words = `x="${round(x)}" y="${round(y + 4)}"`;
  const ground = `stroke="${palette.paper}" stroke-width="5" stroke-linejoin="round"`;
  return `<text ${words} fill="${palette.paper}" ${ground}>${escaped(text)}</text><text ${words} fill="${ink}">${escaped(text)}</text>`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** The picture as a document of SVG 1.1, which needs no fonts and no scripts. Without `paper`, its ground is transparent. */
export function toSvg(picture: Picture, palette: Palette, caption: Caption, paper = false): Svg {
  const { marks } = caption;
  const bounds = picture.bounds() ?? { x1: 0, y1: 0, x2: 1, y2: 1 };
  const [x, y] = [bounds.x1 - MARGIN, bounds.y1 - MARGIN];
  const width = Math.max(bounds.x2 - bounds.x1 + 2 * MARGIN, 420);
  const height = bounds.y2 - bounds.y1 + 2 * MARGIN + LEGEND.height;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${x} ${y} ${width} ${height}" width="${width}" height="${height}">`,
    "<defs>",
    arrowHead("arrow", 7, "M0 0L8 4L0 8z", palette.edge),
    arrowHead("back", 8, "M8 0L0 4L8 8z", palette.accent),
    "</defs>",
    ...(paper ? [`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${palette.paper}"/>`] : []),
    `<g fill="none" stroke="${palette.edge}" stroke-width="1.4" marker-end="url(#arrow)">`,
  ];
  const texts: string[] = [];
  for (const { key, edge, points } of picture.edges.values()) {
    const [source, target] = [picture.boxes.get(edge.source), picture.boxes.get(edge.target)];
    if (source === undefined || target === undefined) continue;
    const mark = marks.get(key);
    const isMarked = mark !== undefined;
    const start = border(source, points[0] ?? target, picture.direction, isMarked ? HEAD : 0);
    const end = border(target, points.at(-1) ?? source, picture.direction);
    const look = isMarked
      ? ` stroke="${palette.accent}" stroke-width="3" marker-start="url(#back)" marker-end="none"`
      : source.box.kind === "tensor" ? ' stroke-dasharray="5 4"' : "";
    parts.push(`<path d="${pathThrough(start, points, end)}"${look}/>`);
    const text = mark ?? (edge.count > 1 ? `×${edge.count}` : "");
    if (text !== "") texts.push(textOn(text, middleOf(start, points, end), palette, isMarked ? palette.ink : palette.quiet));
  }
  parts.push(`</g><g font-family="${FONT}" font-size="12" text-anchor="middle">`);
  for (const { box, x: cx, y: cy, width: w, height: h, label, fill, ink } of picture.boxes.values()) {
    const radius = box.kind === "leaf" || box.kind === "tensor" ? h / 2 : 7;
    const [first = "", second = ""] = label.split("\n");
    const frame =
      box.id === caption.current ? `stroke="${palette.accent}" stroke-width="4"`
      : marks.has(box.id) ? `stroke="${palette.accent}" stroke-width="3" stroke-dasharray="4 2"`
      : `stroke="${palette.line}"`;
    parts.push(
      `<g><title>${escaped(box.label)}</title>` +
        `<rect x="${cx - w / 2}" y="${cy - h / 2}" width="${w}" height="${h}" rx="${radius}" fill="${fill}" ${frame}/>` +
        `<text x="${cx}" y="${cy - 3}" fill="${ink}" font-weight="600">${escaped(first)}</text>` +
        `<text x="${cx}" y="${cy + 13}" fill="${ink}" font-size="11">${escaped(second)}</text></g>`,
    );
  }
  parts.push(...texts, "</g>", legend(picture, palette, caption.title, { x: x + MARGIN, y: y + height - LEGEND.height / 2 }), "</svg>");
  return { text: parts.join("\n"), width, height };
}

function arrowHead(id: string, refX: number, path: string, fill: string): string {
  const size = `viewBox="0 0 8 8" refX="${refX}" refY="4" markerWidth="${HEAD}" markerHeight="${HEAD}" markerUnits="userSpaceOnUse"`;
  return `<marker id="${id}" ${size} orient="auto"><path d="${path}" fill="${fill}"/></marker>`;
}

/** What the picture is of, and what its colours mean. */
function legend(picture: Picture, palette: Palette, title: string, { x, y }: { x: number; y: number }): string {
  const { range } = picture;
  const line = (text: string, at: number) => `<text x="${x}" y="${at}" fill="${palette.ink}">${escaped(text)}</text>`;
  const parts = [`<g font-family="${FONT}" font-size="12">`, line(title, y - 10)];
  if (range !== null && range.min === range.max) parts.push(line(`gradient norm ${formatNumber(range.min, 2)}`, y + 8));
  if (range !== null && range.min < range.max) {
    const colours = STOPS.map((stop) => `<stop offset="${stop}" stop-color="${css(scaleColour(palette, stop))}"/>`).join("");
    parts.push(
      `<defs><linearGradient id="scale">${colours}</linearGradient></defs>`,
      line(`gradient norm, logarithmic, ${formatNumber(range.min, 2)} to ${formatNumber(range.max, 2)}`, y + 8),
      `<rect x="${x}" y="${y + 14}" width="${LEGEND.ramp}" height="8" fill="url(#scale)"/>`,
    );
  }
  return `${parts.join("")}</g>`;
}

/** The picture as a PNG, at twice its size unless that is too large for a browser. */
export async function toPng(picture: Picture, palette: Palette, caption: Caption): Promise<Blob> {
  const { text, width, height } = toSvg(picture, palette, caption, true);
  const scale = Math.min(2, MAX_SIDE / width, MAX_SIDE / height);
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob === null ? reject(new Error("the picture is too large for a PNG")) : resolve(blob))),
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** The name of a file for a picture: letters and digits of its title. */
export function fileName(title: string, kind: string): string {
  return `${title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80) || "graph"}.${kind}`;
}

/** Hands a file to the user, as a download. */
export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
