// Where the boxes of a graph are: a row for each rank, and lanes across the rows.
//
// Boxes are placed in the order in which they arrived, each in the free lane that is nearest to its inputs, and stay there
// while others arrive. A box moves only if its rank changes, and then it keeps its lane if that is free. An edge that
// passes other rows reserves a cell in each of them, so that it crosses no box.

/** A place in the grid. Data flow downwards: a larger rank is further down. Lanes count from 0 in both directions. */
export interface Cell {
  rank: number;
  lane: number;
}

export interface LayoutBox {
  id: string;
  rank: number;
  order: number;
}

export interface LayoutEdge {
  source: string;
  target: string;
}

/** The most rows for which an edge reserves cells. A longer one is drawn across what is there. */
const MAX_RESERVED = 48;
/** How many boxes without any edge are side by side. */
const SHELF_WIDTH = 8;

export function edgeKey(edge: LayoutEdge): string {
  return `${edge.source}\n${edge.target}`; // no id has a line break
}

/** The free cells of the rows. */
class Grid {
  private readonly rows = new Map<number, Set<number>>();

  isFree(rank: number, lane: number): boolean {
    return !(this.rows.get(rank)?.has(lane) ?? false);
  }

  take(cells: Iterable<Cell>): void {
    for (const { rank, lane } of cells) {
      const row = this.rows.get(rank);
      if (row === undefined) this.rows.set(rank, new Set([lane]));
      else row.add(lane);
    }
  }

  release(cells: Iterable<Cell>): void {
    for (const { rank, lane } of cells) this.rows.get(rank)?.delete(lane);
  }

  /** The lane nearest to `wanted` that is free in all rows from `first` to `last`. */
  nearest(wanted: number, first: number, last = first): number {
    const middle = Math.round(wanted);
    const toRight = wanted >= middle ? 1 : -1;
    for (let distance = 0; ; distance += 1) {
      for (const lane of [middle + toRight * distance, middle - toRight * distance]) {
        let free = true;
        for (let rank = first; free && rank <= last; rank += 1) free = this.isFree(rank, lane);
        if (free) return lane;
      }
    }
  }
}

export class Layout {
  private readonly grid = new Grid();
  private readonly cells = new Map<string, Cell>();
  private readonly bends = new Map<string, Cell[]>();

  /** The cell of a box. Undefined if it is not part of the graph. */
  cellOf(id: string): Cell | undefined {
    return this.cells.get(id);
  }

  /** The cells that an edge passes on its way down, without those of its ends. */
  bendsOf(edge: LayoutEdge): readonly Cell[] {
    return this.bends.get(edgeKey(edge)) ?? [];
  }

  /** Bring the layout to a graph: remove what is gone, keep what stays, place what is new. */
  update(boxes: readonly LayoutBox[], edges: readonly LayoutEdge[]): void {
    const inputs = new Map<string, string[]>();
    const outputs = new Map<string, string[]>();
    for (const { source, target } of edges) {
      if (source === target) continue;
      (inputs.get(target) ?? listIn(inputs, target)).push(source);
      (outputs.get(source) ?? listIn(outputs, source)).push(target);
    }
    // The next step of a loop has the same parameters and other ops: it is drawn as if it were the first.
    if (![...inputs.keys()].some((id) => this.cells.has(id))) this.clear();
    const ranks = drawnRanks(boxes, inputs, outputs);
    const wishes = this.removeStale(ranks, new Set(edges.map(edgeKey)));
    const place = (id: string) => this.placeBox(id, ranks, wishes, inputs, outputs);
    const ordered = [...boxes].sort((a, b) => a.order - b.order);
    for (const { id } of ordered) {
      const from = inputs.get(id) ?? [];
      if (from.length === 0 && outputs.has(id)) continue; // with its first consumer, below
      place(id);
      for (const source of from) {
        if (!inputs.has(source)) place(source);
      }
      for (const source of from) this.reserve({ source, target: id });
    }
    for (const { id } of ordered) place(id);
    for (const edge of edges) this.reserve(edge);
  }

  private clear(): void {
    this.grid.release([...this.cells.values(), ...[...this.bends.values()].flat()]);
    this.cells.clear();
    this.bends.clear();
  }

  /** Frees what is no longer where it was, and returns the lanes of boxes that change their rows. */
  private removeStale(ranks: Map<string, number>, edges: Set<string>): Map<string, number> {
    const wishes = new Map<string, number>();
    for (const [id, cell] of this.cells) {
      const rank = ranks.get(id);
      if (rank === cell.rank) continue;
      if (rank !== undefined) wishes.set(id, cell.lane);
      this.grid.release([cell]);
      this.cells.delete(id);
    }
    for (const [key, cells] of this.bends) {
      const [source = "", target = ""] = key.split("\n");
      if (edges.has(key) && this.cells.has(source) && this.cells.has(target)) continue;
      this.grid.release(cells);
      this.bends.delete(key);
    }
    return wishes;
  }

  private placeBox(
    id: string,
    ranks: Map<string, number>,
    wishes: Map<string, number>,
    inputs: Map<string, string[]>,
    outputs: Map<string, string[]>,
  ): void {
    const rank = ranks.get(id);
    if (rank === undefined || this.cells.has(id)) return;
    // Inputs that have inputs themselves are the trunk; parameters and data stand beside it.
    const from = inputs.get(id) ?? [];
    const trunk = from.filter((source) => inputs.has(source));
    const wanted = wishes.get(id) ?? this.meanLane(trunk) ?? this.meanLane(from) ?? this.meanLane(outputs.get(id) ?? []) ?? 0;
    const cell = { rank, lane: this.grid.nearest(wanted, rank) };
    this.cells.set(id, cell);
    this.grid.take([cell]);
  }

  private meanLane(ids: readonly string[]): number | undefined {
    let sum = 0;
    let count = 0;
    for (const id of ids) {
      const cell = this.cells.get(id);
      if (cell === undefined) continue;
      sum += cell.lane;
      count += 1;
    }
    return count === 0 ? undefined : sum / count;
  }

  /** Takes a free lane for an edge between rows that are not neighbours. */
  private reserve(edge: LayoutEdge): void {
    const key = edgeKey(edge);
    const source = this.cells.get(edge.source);
    const target = this.cells.get(edge.target);
    if (source === undefined || target === undefined || this.bends.has(key)) return;
    const [first, last] = [source.rank + 1, target.rank - 1];
    if (last < first || last - first >= MAX_RESERVED) return;
    const lane = this.grid.nearest((source.lane + target.lane) / 2, first, last);
    const cells = Array.from({ length: last - first + 1 }, (_, index) => ({ rank: first + index, lane }));
    this.bends.set(key, cells);
    this.grid.take(cells);
  }
}

function listIn(lists: Map<string, string[]>, key: string): string[] {
  const list: string[] = [];
  lists.set(key, list);
  return list;
}

/**
 * The row of each box: the server's rank, except that a box without inputs is in the row above its first consumer, and
 * that boxes without any edge are on shelves above all others.
 */
function drawnRanks(
  boxes: readonly LayoutBox[],
  inputs: Map<string, string[]>,
  outputs: Map<string, string[]>,
): Map<string, number> {
  const ranks = new Map(boxes.map((box) => [box.id, box.rank]));
  let shelved = 0;
  for (const box of [...boxes].sort((a, b) => a.order - b.order)) {
    if (inputs.has(box.id)) continue;
    const consumers = outputs.get(box.id);
    if (consumers === undefined) {
      if (boxes.length > 1) ranks.set(box.id, -2 - Math.floor(shelved / SHELF_WIDTH));
      shelved += 1;
    } else {
      const below = consumers.map((id) => ranks.get(id) ?? Infinity).reduce((a, b) => Math.min(a, b));
      if (below !== Infinity) ranks.set(box.id, below - 1);
    }
  }
  return ranks;
}
