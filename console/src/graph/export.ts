// Pictures of a whole graph as files.

import type { Palette } from "./colour";
import type { Picture } from "./picture";
import { pathThrough } from "../layout/geometry";

const MARGIN = 24;
/** The most pixels of a side of a PNG, which browsers can still draw. */
const MAX_SIDE = 8192;
const FONT = "system-ui, sans-serif";

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

interface Svg {
  text: string;
  width: number;
  height: number;
}

/** The picture as a document of SVG 1.1, which needs no fonts and no scripts. */
export function toSvg(picture: Picture, palette: Palette): Svg {
  const bounds = picture.bounds() ?? { x1: 0, y1: 0, x2: 1, y2: 1 };
  const [x, y] = [bounds.x1 - MARGIN, bounds.y1 - MARGIN];
  const [width, height] = [bounds.x2 - bounds.x1 + 2 * MARGIN, bounds.y2 - bounds.y1 + 2 * MARGIN];
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${x} ${y} ${width} ${height}" width="${width}" height="${height}">`,
    `<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">` +
      `<path d="M0 0L8 4L0 8z" fill="${palette.edge}"/></marker></defs>`,
    `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${palette.paper}"/>`,
    `<g fill="none" stroke="${palette.edge}" stroke-width="1.4" marker-end="url(#arrow)">`,
  ];
  for (const { edge, points } of picture.edges.values()) {
    const [source, target] = [picture.boxes.get(edge.source), picture.boxes.get(edge.target)];
    if (source === undefined || target === undefined) continue;
    const down = (points.at(-1) ?? source).y < target.y;
    const end = { x: target.x, y: target.y - ((down ? 1 : -1) * target.height) / 2 };
    parts.push(`<path d="${pathThrough(source, points, end)}"/>`);
  }
  parts.push(`</g><g font-family="${FONT}" font-size="12" text-anchor="middle">`);
  for (const { box, x: cx, y: cy, width: w, height: h, label, fill, ink } of picture.boxes.values()) {
    const radius = box.kind === "leaf" || box.kind === "tensor" ? h / 2 : 7;
    const [first = "", second = ""] = label.split("\n");
    parts.push(
      `<g><title>${escaped(box.label)}</title>` +
        `<rect x="${cx - w / 2}" y="${cy - h / 2}" width="${w}" height="${h}" rx="${radius}" fill="${fill}" stroke="${palette.line}"/>` +
        `<text x="${cx}" y="${cy - 3}" fill="${ink}" font-weight="600">${escaped(first)}</text>` +
        `<text x="${cx}" y="${cy + 13}" fill="${ink}" font-size="11">${escaped(second)}</text></g>`,
    );
  }
  parts.push("</g></svg>");
  return { text: parts.join("\n"), width, height };
}

/** The picture as a PNG, at twice its size unless that is too large for a browser. */
export async function toPng(picture: Picture, palette: Palette): Promise<Blob> {
  const { text, width, height } = toSvg(picture, palette);
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

/** Hands a file to the user, as a download. */
export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
