// Where the time of a session went: waiting for the client, waiting for its turn, running.

export interface Timed {
  /** When it ended, in seconds. */
  endedAt: number;
  seconds: number;
  queued_s?: number;
}

export interface Shares {
  running: number;
  queued: number;
  /** The rest: no program was there. */
  client: number;
}

/** The shares of the time from `start` to `end`. Programs of a session run one by one; several may queue meanwhile. */
export function sharesOf(programs: readonly Timed[], start: number, end: number): Shares | null {
  if (end <= start) return null;
  let running = 0;
  let queued = 0;
  let until = start;
  const within = programs.filter((program) => program.endedAt > start && program.endedAt - program.seconds < end);
  for (const program of [...within].sort((a, b) => a.endedAt - b.endedAt)) {
    const began = Math.max(start, program.endedAt - program.seconds);
    const arrived = Math.max(until, began - (program.queued_s ?? 0));
    queued += Math.max(0, began - arrived);
    running += Math.max(0, Math.min(end, program.endedAt) - Math.max(began, until));
    until = Math.max(until, Math.min(end, program.endedAt));
  }
  const length = end - start;
  const shares = { running: Math.min(1, running / length), queued: Math.min(1, queued / length) };
  return { ...shares, client: Math.max(0, 1 - shares.running - shares.queued) };
}

export interface RangeLike {
  id: number;
  parent: number | null;
  start_ns: number;
  end_ns: number;
}

/** How deep each range is inside others. The rows of a flame chart. */
export function depthsOf(ranges: readonly RangeLike[]): Map<number, number> {
  const byId = new Map(ranges.map((range) => [range.id, range]));
  const depths = new Map<number, number>();
  for (const range of ranges) {
    const chain: RangeLike[] = [];
    let each: RangeLike | undefined = range;
    while (each !== undefined && !depths.has(each.id) && chain.length <= ranges.length) {
      chain.push(each);
      each = each.parent === null ? undefined : byId.get(each.parent);
    }
    let depth = each === undefined ? -1 : (depths.get(each.id) ?? -1);
    for (const member of chain.reverse()) depths.set(member.id, (depth += 1));
  }
  return depths;
}
